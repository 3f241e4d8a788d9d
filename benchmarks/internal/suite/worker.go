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

// Load is what a worker does. It lives through all rounds. One goroutine calls it.
type Load interface {
	// Round does n operations and adds what it found beside their time. It blocks.
	Round(n int, found rounds.Values) error
	// Close gives everything back. It blocks.
	Close() error
}

// Warmer is a load that does something before its first round, of n operations, which
// is not measured. It blocks.
type Warmer interface {
	WarmUp(n int) error
}

// Worker is this program as a side that does one load.
type Worker struct {
	Arg   string   // the first argument of this program, by which main knows it
	Loads []string // the names that New knows
	// Flags defines the flags of the loads.
	Flags func(*flag.FlagSet)
	// New makes a load by its name, after the flags were read.
	New func(load string) (Load, error)
}

// Main runs the worker with the arguments after Arg. It makes the load, serves rounds of
// it on the standard input and output, and ends it. It blocks until the input ends, and
// returns the exit code. One goroutine may call it.
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

// measure runs one round and takes its time, and the process's.
func measure(l Load, n int) (rounds.Values, error) {
	found := rounds.Values{Ops: float64(n)}
	runtime.GC() // what the last round left is not this one's
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

// Start starts this program as a side that does load: name is the side's, args are for
// the load's flags, env is more environment. It blocks until the side is ready. Any
// goroutine may call it, and closes the side.
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
