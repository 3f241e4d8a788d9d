// Command demo moves a file between two runtimes in three ways, by SEND, by WRITE with immediate
// and by READ, and compares the copy with the source.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	maxFile = 1 << 30         // bytes; two copies of the file are kept in memory
	drain   = 5 * time.Second // time limit for closing
)

func main() {
	path := flag.String("file", "", "the `path` of the file to move; default: the Go compiler")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	err = run(ctx, os.Stdout, terminal, *path)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run moves the file at path, and reports the results on w.
func run(ctx context.Context, w io.Writer, terminal bool, path string) (err error) {
	if path == "" {
		path = somethingLarge()
	}
	file, size, err := open(path)
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	m := mover{progress: progress{w: w, terminal: terminal, size: size}}
	cfg := verbena.Config{Conn: verbena.Options{MessageSize: chunk}}
	if m.here, err = verbena.Open(cfg); err != nil {
		return err
	}
	defer shut(m.here, &err)
	if m.there, err = verbena.Open(cfg); err != nil {
		return err
	}
	defer shut(m.there, &err)
	if err = m.connect(ctx); err != nil {
		return err
	}
	// The peer may read the source and write the target.
	if m.source, err = m.here.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteRead); err != nil {
		return err
	}
	if m.target, err = m.there.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	if m.sourceAt, err = m.source.Remote(0, size); err != nil {
		return err
	}
	if m.targetAt, err = m.target.Remote(0, size); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %d bytes\n", path, size) // reading a large one takes a while
	hash := xxhash.New()
	if _, err = io.ReadFull(io.TeeReader(file, hash), m.source.Bytes()); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	for _, by := range []way{send, write, read} {
		if err = m.measure(ctx, by); err != nil {
			return fmt.Errorf("moving by %s: %w", by, err)
		}
		if err = compare(w, hash.Sum64(), m.target.Bytes()); err != nil {
			return fmt.Errorf("moving by %s: %w", by, err)
		}
	}
	return nil
}

// shut closes a runtime and all its objects: listeners, connections, regions. Also after ctx
// ended, in which case it also waits for outstanding operations.
func shut(rt *verbena.Runtime, err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	*err = errors.Join(*err, rt.Close(ctx))
}

// compare checks that the copy has the source's hash.
func compare(w io.Writer, source uint64, target []byte) error {
	copied := xxhash.Sum64(target)
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
