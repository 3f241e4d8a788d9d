package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/examples/internal/process"
	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) {
	process.Main(main, leak.Take)
	leak.Main(m)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func writeFile(t *testing.T, size int) string {
	t.Helper()
	rng, data := rand.New(rand.NewPCG(1, 2)), make([]byte, size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var line = regexp.MustCompile(`(?m)^(SEND|WRITE_WITH_IMM|READ) +(\d+) bytes, (\d+\.\d+) GB/s
    (\d+) operations, (\d+) doorbells, (\d+\.\d) work requests per doorbell
    xxhash of source ([0-9a-f]{16}), of copy ([0-9a-f]{16}): equal$`)

// Rule: each way moves the whole file, whatever its size, and pipelined work has more than 4 work
// requests per doorbell.
func TestMovesFiles(t *testing.T) {
	for _, size := range []int{1, chunk - 1, chunk, chunk + 1, 200*chunk + 17} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			var out bytes.Buffer
			if err := example(false).Run(testContext(t), &out, writeFile(t, size)); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			found := line.FindAllStringSubmatch(out.String(), -1)
			if len(found) != 3 {
				t.Fatalf("%d results, want one for each of 3 ways:\n%s", len(found), &out)
			}
			for _, m := range found {
				ops := (size + chunk - 1) / chunk
				if m[2] != strconv.Itoa(size) || m[4] != strconv.Itoa(ops) || m[7] != m[8] {
					t.Errorf("want %d bytes in %d operations and equal hashes: %s", size, ops, m[0])
				}
				if per, err := strconv.ParseFloat(m[6], 64); err != nil || ops > depth && per <= 4 {
					t.Errorf("want more than 4 work requests per doorbell: %s", m[0])
				}
			}
			if size > 4*chunk && (strings.Count(out.String(), " 100 %\n") != 3 || strings.Count(out.String(), " %\n") != 12) {
				t.Errorf("want progress in quarters:\n%s", &out)
			}
		})
	}
}

// Rule: on a terminal the progress is one line, which is erased at the end.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	if err := example(true).Run(testContext(t), &out, writeFile(t, 100*chunk)); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(out.String(), "\r")
	if strings.Count(first, "\n") != 1 || strings.Count(rest, "\r\033[K") != 3 || strings.Count(rest, "   0 %, 0 of ") != 3 || !strings.Contains(rest, "100 %") {
		t.Errorf("want the file's line, and progress on one line per way: %q", out.String())
	}
}

// Rule: a copy that differs in one bit is an error.
func TestDifferentCopyIsAnError(t *testing.T) {
	var out bytes.Buffer
	err := compare(&out, 1, 2)
	if err == nil || !strings.Contains(err.Error(), "0000000000000001") || !strings.Contains(out.String(), "NOT EQUAL") {
		t.Errorf("compare: %v, %q", err, &out)
	}
}

// Rule: cancellation ends the program, with nothing left behind.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := example(false).Run(ctx, &bytes.Buffer{}, writeFile(t, chunk)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled move: %v, want context.Canceled", err)
	}
}

// Rule: a file that cannot be moved is reported on standard error, and the exit code is not 0.
func TestProgramRefuses(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, maxFile+1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "missing"), "no such file"},
		{dir, "not a regular file"},
		{os.DevNull, "not a regular file"},
		{writeFile(t, 0), "is empty"},
		{huge, "at most 1073741824"},
	} {
		code, stdout, stderr := process.Run(t, c.path)
		if code != 1 || stdout != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, filepath.Base(c.path)) {
			t.Errorf("moving %s: exit code %d, %q on standard output, %q on standard error; want 1 and %q", c.path, code, stdout, stderr, c.want)
		}
	}
}

// Rule: without an argument the program finds a file.
func TestProgramWithoutAFile(t *testing.T) {
	if path := somethingLarge(); path == "" {
		t.Fatal("no file was found")
	}
	code, stdout, stderr := process.Run(t, writeFile(t, 3*chunk))
	if code != 0 || strings.Count(stdout, ": equal\n") != 3 || stderr != "" {
		t.Errorf("exit code %d, %q on standard output, %q on standard error", code, stdout, stderr)
	}
}

// Rule: the server and the client are two processes, and the server takes one file after the other.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for _, size := range []int{1, (depth+1)*chunk + 1} {
		out := server.Dial(writeFile(t, size))
		found := line.FindAllStringSubmatch(out, -1)
		if len(found) != 3 {
			t.Fatalf("%d results, want one for each of 3 ways:\n%s", len(found), out)
		}
		for _, m := range found {
			if m[2] != strconv.Itoa(size) || m[4] != strconv.Itoa((size+chunk-1)/chunk) || m[7] != m[8] {
				t.Errorf("want %d bytes and equal hashes: %s", size, m[0])
			}
		}
	}
	if got := server.Stop(); got != "" {
		t.Errorf("the server printed %q", got)
	}
}
