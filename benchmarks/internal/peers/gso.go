package peers

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

//go:embed c/gso.c
var gsoSource []byte

//go:embed c/crc.h
var crcSource []byte

// compileTime bounds the compiler: a second on an idle machine.
const compileTime = time.Minute

// burst is the size of a burst of the floor of bandwidth, in bytes.
const burst = 64 << 10

// buildGSO compiles the floor of bandwidth into dir and returns the program.
func buildGSO(ctx context.Context, dir string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("UDP_SEGMENT is Linux's, not of %s", runtime.GOOS)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := find(cc, "gcc"); err != nil {
		return "", fmt.Errorf("no C compiler: %w", err)
	}
	source, program := filepath.Join(dir, "gso.c"), filepath.Join(dir, "gso")
	for name, text := range map[string][]byte{source: gsoSource, filepath.Join(dir, "crc.h"): crcSource} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", source, err, out)
	}
	return program, nil
}

// gsoFloor is the floor of bandwidth, for n bursts.
func (s *session) gsoFloor(n int) *contender {
	return s.contender("GSO", "GSO: bursts of 64 KiB in segments of 4 KiB, by UDP_SEGMENT and UDP_GRO, with a CRC-32 of each segment on both sides and one copy on reception (c/gso.c)",
		func(ctx context.Context) (rounds.Values, error) {
			program, err := s.gsoProgram(ctx)
			if err != nil {
				return nil, err
			}
			return pair{
				name: "GSO", warm: warmUp(n), ops: n,
				server: func() (*exec.Cmd, error) { return exec.Command(program, "serve"), nil },
				client: func(port int) (*exec.Cmd, error) { return exec.Command(program, "send", itoa(port)), nil },
			}.run(ctx)
		})
}

// warmPart is the share of a round's operations that is done before them: tables and buffers grow,
// and memory is touched.
const warmPart = 10

// warmUp returns the number of operations before n that are measured.
func warmUp(n int) int { return max(1, n/warmPart) }
