package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/cpu"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
)

// Load is the work of a worker. It lives through all rounds. One goroutine calls it.
type Load interface {
	// Round does n operations and adds its results, besides their time. It blocks.
	Round(n int, found rounds.Values) error
	// Close releases all resources. It blocks.
	Close() error
}

// Warmer is a load with n operations before its first round, which are not measured. It blocks.
type Warmer interface {
	WarmUp(n int) error
}

// Worker is this program as a side that runs one load.
type Worker struct {
	Arg   string   // the first argument of this program, which main checks
	Loads []string // the names that New accepts
	// Flags defines the flags of the loads.
	Flags func(*flag.FlagSet)
	// New makes a load by its name, after the flags were read.
	New func(load string) (Load, error)
}

// Main runs the worker with the arguments after Arg. It makes the load, serves its rounds on
// standard input and output, and closes it. It blocks until the input ends, and returns the exit
// code. One goroutine may call it.
func (w Worker) Main(args []string) int {
	f := flag.NewFlagSet(w.Arg, flag.ContinueOnError)
	load := f.String("load", "", strings.Join(w.Loads, ", "))
	w.Flags(f)
	if err := f.Parse(args); err != nil {
		return 2
	}
	if err := w.work(*load); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", w.Arg, *load, err)
		return 1
	}
	return 0
}

func (w Worker) work(name string) (err error) {
	l, err := w.New(name)
	if err != nil {
		return side.Cannot(os.Stdout, err)
	}
	defer func() {
		if cerr := l.Close(); err == nil {
			err = cerr
		}
	}()
	warmer, _ := l.(Warmer)
	return side.Serve(os.Stdin, os.Stdout, func(told rounds.Values) (rounds.Values, error) {
		n := int(told[Ops])
		if n < 1 {
			return nil, fmt.Errorf("%d operations", n)
		}
		if warmer != nil {
			if err := warmer.WarmUp(n); err != nil {
				return nil, err
			}
			warmer = nil
		}
		return measure(l, n)
	})
}

// measure runs one round and measures its time, and that of the process.
func measure(l Load, n int) (rounds.Values, error) {
	found := rounds.Values{Ops: float64(n)}
	runtime.GC() // the garbage of the last round does not belong to this one
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c0, err := cpu.Used()
	if err != nil {
		return nil, err
	}
	t0 := time.Now()
	if err := l.Round(n, found); err != nil {
		return nil, err
	}
	wall := time.Since(t0)
	c1, err := cpu.Used()
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	found[CPU], found[Wall] = float64(c1-c0), float64(wall)
	found[Mallocs] = float64(after.Mallocs - before.Mallocs)
	return found, nil
}

// Start starts this program as a side that runs load: name is the side's, args are for the load's
// flags, env is added to the environment. It blocks until the side is ready. Any goroutine may
// call it; the caller closes the side.
func (w Worker) Start(ctx context.Context, name, load string, args []string, env ...string) (*side.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{w.Arg, "-load", load}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, name, cmd)
}
