package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestMain(m *testing.M) { leak.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// file makes a file of size bytes in which no two chunks are alike.
func file(t *testing.T, size int) string {
	t.Helper()
	data := make([]byte, size)
	_, err := rand.NewChaCha8([32]byte{1}).Read(data)
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

var printed = regexp.MustCompile(`^(\d+) bytes, (\d+) work requests, (\d+) doorbells: (\d+\.\d) per doorbell
xxhash of source ([0-9a-f]{16}), of copy ([0-9a-f]{16}), equal: true
$`)

// Rule: the whole file arrives, whatever its size, with one operation per chunk, and more than 4
// of them per doorbell once a wave is full.
func TestMovesFiles(t *testing.T) {
	for _, size := range []int{1, chunk - 1, chunk, chunk + 1, depth * chunk, depth*chunk + 1, 5*depth*chunk - 17} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			var out bytes.Buffer
			if err := run(testContext(t), &out, file(t, size)); err != nil {
				t.Fatal(err)
			}
			m := printed.FindStringSubmatch(out.String())
			ops := (size + chunk - 1) / chunk
			if m == nil || m[1] != strconv.Itoa(size) || m[2] != strconv.Itoa(ops) || m[5] != m[6] {
				t.Fatalf("want %d bytes, %d work requests and equal hashes: %q", size, ops, &out)
			}
			if per, err := strconv.ParseFloat(m[4], 64); err != nil || ops >= depth && per <= 4 {
				t.Errorf("want more than 4 work requests per doorbell: %q", &out)
			}
		})
	}
}

// Rule: a file that cannot be moved is reported by its name, and nothing is printed.
func TestRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, maxFile+1)); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for _, path := range []string{missing, dir, os.DevNull, file(t, 0), huge} {
		var out bytes.Buffer
		err := run(testContext(t), &out, path)
		if err == nil || !strings.Contains(err.Error(), path) || out.Len() > 0 || errors.Is(err, fs.ErrNotExist) != (path == missing) {
			t.Errorf("moving %s: %v, printed %q", path, err, &out)
		}
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &bytes.Buffer{}, file(t, 3*chunk)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}

// Rule: when the client fails, the server does not wait for it: neither when the device refuses
// the descriptor's key, nor when its range is too short, which the client notices half-way.
func TestBadDescriptor(t *testing.T) {
	data := make([]byte, 3*depth*chunk)
	for name, c := range map[string]struct {
		spoil func(*verbena.Remote)
		want  error
	}{
		"key":   {func(r *verbena.Remote) { r.RKey ^= 1 }, verbs.StatusError(verbs.WCRemAccessErr)},
		"range": {func(r *verbena.Remote) { r.Length /= 2 }, verbena.ErrRemoteRange},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			server, client := open(t), open(t)
			target, err := server.NewRegion(len(data), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			ln, err := server.Listen(":0")
			if err != nil {
				t.Fatal(err)
			}
			remote, err := target.Remote(0, len(data))
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(&remote)
			accepted, err := ln.AcceptAsync()
			if err != nil {
				t.Fatal(err)
			}
			received := make(chan error, 1)
			go func() { received <- receive(ctx, accepted, len(data)) }()
			if err := push(ctx, client, ln.Addr().String(), data, remote); !errors.Is(err, c.want) {
				t.Errorf("the client: %v, want %v", err, c.want)
			}
			if err := <-received; err == nil || ctx.Err() != nil {
				t.Errorf("the server: %v; want that its connection ended, before the deadline", err)
			}
		})
	}
}

func open(t *testing.T) *verbena.Runtime {
	t.Helper()
	rt, err := verbena.Open(verbena.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if shut(rt, &err); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return rt
}
