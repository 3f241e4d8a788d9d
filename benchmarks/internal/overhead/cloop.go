package overhead

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

//go:embed c/loop.c
var loopSource []byte

// compileTime bounds the compiler: a second on an idle machine.
const compileTime = time.Minute

// buildLoop compiles the loop in C into dir, with the compiler and the optimization of the null
// device, and returns the program.
func buildLoop(ctx context.Context, dir string, libs nulldev.Paths) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	source, program := filepath.Join(dir, "loop.c"), filepath.Join(dir, "loop")
	if err := os.WriteFile(source, loopSource, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	lib := filepath.Dir(libs.Verbs)
	cmd := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"+filepath.Join(lib, "abi"), "-I"+filepath.Join(lib, "c"),
		"-o", program, source, libs.Verbs, "-Wl,-rpath,"+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the loop in C: %w: %s", err, out)
	}
	return program, nil
}

// startLoop starts the loop as a side.
func startLoop(ctx context.Context, program string) (*side.Child, error) {
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, "the loop in C", cmd)
}
