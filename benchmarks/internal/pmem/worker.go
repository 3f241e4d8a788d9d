package pmem

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// WorkerArg is the first argument of this program where it is a side: for main, which passes the
// rest to Worker.
const WorkerArg = "pmem-worker"

// Worker runs this program as a side, with the arguments after WorkerArg. It blocks until its
// input ends, or, in the guest, until its peer has gone, and returns the exit code. One goroutine may call it.
func Worker(args []string) int {
	if len(args) > 0 && args[0] == guestArg {
		return guestWorker(args[1:])
	}
	return worker().Main(args)
}

func worker() suite.Worker {
	var dir string
	return suite.Worker{
		Arg: WorkerArg, Loads: []string{local, byRPMA, byPlog},
		Flags: func(f *flag.FlagSet) { f.StringVar(&dir, "dir", "", "a folder for files") },
		New:   func(name string) (suite.Load, error) { return newLoad(name, dir) },
	}
}

// fileLoad appends to a file in a folder of its own.
type fileLoad struct{ name, dir string }

func newLoad(name, dir string) (suite.Load, error) {
	if _, ok := ways[name]; !ok && name != local {
		return nil, fmt.Errorf("there is no load %q", name)
	}
	dir, err := os.MkdirTemp(dir, "verbena-pmem-")
	if err != nil {
		return nil, err
	}
	l := &fileLoad{name, dir}
	size := ring
	if name == byPlog {
		size = logSize
	}
	if err := fill(l.file(), size); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *fileLoad) file() string { return filepath.Join(l.dir, "memory") }

// Close implements suite.Load.
func (l *fileLoad) Close() error { return os.RemoveAll(l.dir) }

// Round implements suite.Load.
func (l *fileLoad) Round(n int, found rounds.Values) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), guest.PairTime)
	defer cancel()
	appends := load{mode: waiting, ops: n}
	if l.name == local {
		a, err := openLocal(l.file())
		if err != nil {
			return err
		}
		return errors.Join(appends.timed(ctx, a, found), a.close(ctx))
	}
	var rts [2]*verbena.Runtime
	defer func() { err = errors.Join(err, bed.Close(rts[:]...)) }()
	for i, device := range []string{"soft:soft0", "soft:soft1"} {
		if rts[i], err = verbena.Open(verbena.Config{Device: device}); err != nil {
			return err
		}
	}
	w := ways[l.name]
	at, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- w.serve(ctx, rts[1], l.file(), bed.ThereAddr, func(addr string) { at <- addr }) }()
	select {
	case addr := <-at:
		err = w.dialAndTime(ctx, rts[0], addr, appends, found)
		if err != nil {
			cancel() // the server may wait for its peer
		}
		return errors.Join(err, <-served)
	case err := <-served:
		return err
	}
}
