// Command demo moves a file from a client to a server in three ways, by SEND, by WRITE with
// immediate and by READ, and compares the copy with the source.
//
//	demo [path]                 both in this process; by default the path of the Go compiler
//	demo serve [address]        the server, until it is interrupted
//	demo dial address [path]    the client
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/verbena-rdma/verbena/examples/ends"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const maxFile = 1 << 30 // bytes; both ends keep the whole file in memory

func main() {
	info, err := os.Stdout.Stat()
	example(err == nil && info.Mode()&os.ModeCharDevice != 0).Main()
}

// example returns the demo, which prints its progress on a terminal or elsewhere.
func example(terminal bool) ends.Example {
	return ends.Example{
		// A receive for each chunk of a wave from the beginning: by default a connection gets more receives as it uses them.
		Config: verbena.Config{Conn: verbena.Options{MessageSize: chunk, RecvCredits: depth}},
		Serve:  server,
		Dial: func(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, args []string) error {
			return client(ctx, progress{w: w, terminal: terminal}, rt, addr, args)
		},
		Args: "[path]",
	}
}

// client moves a file, and prints the results.
func client(ctx context.Context, p progress, rt *verbena.Runtime, addr string, args []string) (err error) {
	if len(args) == 0 {
		args = []string{somethingLarge()}
	}
	path := args[0]
	file, size, err := open(path)
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	p.size = size
	// The peer may read the source.
	source, err := rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		return err
	}
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	fmt.Fprintf(p.w, "%s: %d bytes\n", path, size) // reading a large one takes a while
	hash := xxhash.New()
	if _, err = io.ReadFull(io.TeeReader(file, hash), source.Bytes()); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	here := &end{rt: rt, conn: conn, file: source}
	if err = here.sendDescriptor(ctx); err != nil {
		return err
	}
	if err = here.recvDescriptor(ctx); err != nil {
		return err
	}
	for _, by := range []way{send, write, read} {
		copied, err := here.measure(ctx, by, &p)
		if err == nil {
			err = compare(p.w, hash.Sum64(), copied)
		}
		if err != nil {
			return fmt.Errorf("moving by %s: %w", by, err)
		}
	}
	return nil
}

// compare checks that the copy has the source's hash.
func compare(w io.Writer, source, copied uint64) error {
	if copied != source {
		fmt.Fprintf(w, "    xxhash of source %016x, of copy %016x: NOT EQUAL\n", source, copied)
		return fmt.Errorf("the copy differs: its xxhash is %016x, the source's %016x", copied, source)
	}
	fmt.Fprintf(w, "    xxhash of source %016x, of copy %016x: equal\n", source, copied)
	return nil
}

// open opens a file that can be moved.
func open(path string) (*os.File, int, error) {
	info, err := os.Stat(path) // before opening, because opening a pipe waits for a writer
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is not a regular file (%v)", path, info.Mode())
	case info.Size() == 0:
		return nil, 0, fmt.Errorf("%s is empty: there is nothing to move", path)
	case info.Size() > maxFile:
		return nil, 0, fmt.Errorf("%s has %d bytes: at most %d are taken, all of them are kept in memory", path, info.Size(), maxFile)
	}
	file, err := os.Open(path)
	return file, int(info.Size()), err
}

// somethingLarge returns the path of an existing file of some tens of MB: the Go compiler, or
// else this program.
func somethingLarge() string {
	if dir, err := exec.Command("go", "env", "GOTOOLDIR").Output(); err == nil {
		compiler := filepath.Join(strings.TrimSpace(string(dir)), "compile")
		if _, err := os.Stat(compiler); err == nil {
			return compiler
		}
	}
	me, _ := os.Executable() // without one, opening "" fails with an error
	return me
}
