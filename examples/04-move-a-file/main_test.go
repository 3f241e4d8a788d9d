package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
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
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
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

// keepAlive is the default of Options.KeepAlive, after which an end probes a peer that is silent.
const keepAlive = 5 * time.Second

// Rule: the whole file arrives, whatever its size, with one operation per chunk, and more than 4
// of them per doorbell in several waves. (During the first the peer's window grows from one message, so it
// is posted piece by piece.) The connection itself may send credit updates meanwhile, and on a slow
// machine keep-alives.
func TestMovesFiles(t *testing.T) {
	for _, size := range []int{1, chunk - 1, chunk, chunk + 1, depth * chunk, depth*chunk + 1, 5*depth*chunk - 17} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			var out bytes.Buffer
			began := time.Now()
			if err := example.Run(testContext(t), &out, file(t, size)); err != nil {
				t.Fatal(err)
			}
			most := 2 + int(time.Since(began)/keepAlive)
			m := printed.FindStringSubmatch(out.String())
			ops := (size + chunk - 1) / chunk
			if m == nil || m[1] != strconv.Itoa(size) || m[5] != m[6] {
				t.Fatalf("want %d bytes and equal hashes: %q", size, &out)
			}
			if n, err := strconv.Atoi(m[2]); err != nil || n < ops || n > ops+most {
				t.Errorf("want %d work requests, and at most %d more: %q", ops, most, &out)
			}
			if per, err := strconv.ParseFloat(m[4], 64); err != nil || ops > 4*depth && per <= 4 {
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
		err := example.Run(testContext(t), &out, path)
		if err == nil || !strings.Contains(err.Error(), path) || out.Len() > 0 || errors.Is(err, fs.ErrNotExist) != (path == missing) {
			t.Errorf("moving %s: %v, printed %q", path, err, &out)
		}
	}
}

// Rule: a context that has ended ends the example.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := example.Run(ctx, &bytes.Buffer{}, file(t, 3*chunk)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v, want context.Canceled", err)
	}
}

// Rule: when the client fails, the server does not wait for it: neither when the device refuses
// the descriptor's key, nor when its range is too short, which the client notices half-way.
func TestBadDescriptor(t *testing.T) {
	const size = 3 * depth * chunk
	for name, c := range map[string]struct {
		spoil func(*verbena.Remote)
		want  error
	}{
		"key":   {func(r *verbena.Remote) { r.RKey ^= 1 }, verbs.StatusError(verbs.WCRemAccessErr)},
		"range": {func(r *verbena.Remote) { r.Length /= 2 }, verbena.ErrRemoteRange},
	} {
		t.Run(name, func(t *testing.T) {
			outer, received := testContext(t), make(chan error, 1)
			x := example
			x.Serve = func(_ context.Context, _ io.Writer, rt *verbena.Runtime, conn *verbena.Conn) error {
				target, err := rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
				if err != nil {
					return err
				}
				remote, err := target.Remote(0, size)
				if err != nil {
					return err
				}
				c.spoil(&remote)
				err = receive(outer, conn, target, remote) // only the end of the connection ends it
				received <- err
				return err
			}
			if err := x.Run(outer, io.Discard, file(t, size)); !errors.Is(err, c.want) {
				t.Errorf("the client: %v, want %v", err, c.want)
			}
			if err := <-received; err == nil || outer.Err() != nil {
				t.Errorf("the server: %v; want that its connection ended, before the deadline", err)
			}
		})
	}
}

// Rule: the server and the client are two processes, and the server takes one file after the other.
func TestTwoProcesses(t *testing.T) {
	server := process.Serve(t)
	for _, size := range []int{1, 2*depth*chunk + 1} {
		m := printed.FindStringSubmatch(server.Dial(file(t, size)))
		if m == nil || m[1] != strconv.Itoa(size) || m[5] != m[6] {
			t.Errorf("want %d bytes and equal hashes: %q", size, m)
		}
	}
	if got := server.Stop(); got != "" {
		t.Errorf("the server printed %q", got)
	}
}

// Rule: the server refuses a size that it does not take, and goes on.
func TestServerRefusesSizes(t *testing.T) {
	for _, private := range [][]byte{nil, make([]byte, 7), make([]byte, 8), binary.LittleEndian.AppendUint64(nil, maxFile+1)} {
		x, out := example, new(bytes.Buffer)
		x.Dial = func(ctx context.Context, _ io.Writer, rt *verbena.Runtime, addr string, _ []string) error {
			conn, err := rt.DialOptions(ctx, addr, verbena.Options{PrivateData: private})
			if err != nil {
				return err
			}
			if _, err = conn.RecvWait(ctx); !errors.Is(err, verbena.ErrPeerClosed) {
				t.Errorf("size %x: %v, want that the server closes", private, err)
			}
			return errors.Join(conn.Close(ctx), client(ctx, io.Discard, rt, addr, []string{file(t, 1)}))
		}
		if err := x.Run(testContext(t), out); err != nil || !strings.HasPrefix(out.String(), "connection from ") {
			t.Errorf("size %x: %v, printed %q, want the error of a connection", private, err, out)
		}
	}
}
