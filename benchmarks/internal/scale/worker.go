package scale

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/verbena-rdma/verbena/benchmarks/internal/cpu"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// WorkerArg is the first argument of this program where it is a side: for main, which
// hands the rest to Worker.
const WorkerArg = "scale-worker"

// load is what a worker does. It lives through all rounds.
type load interface {
	// round does n operations and adds what it found.
	round(n int, found rounds.Values) error
	// close gives everything back.
	close() error
}

// loads make the loads, by the names that workers are started by.
var loads = map[string]func(at place, opts verbena.Options, n int) (load, error){
	"connect": newConnecting,
	"latency": newWaiting,
}

// Worker is this program as a side, with the arguments after WorkerArg. It blocks until
// its input ends, and returns the exit code.
func Worker(args []string) int {
	var at place
	f := flag.NewFlagSet(WorkerArg, flag.ContinueOnError)
	name := f.String("load", "", "connect, latency")
	size := f.String("size", "", "default, small")
	conns := f.Int("conns", 1, "connections")
	f.StringVar(&at.device, "device", devSoft, "null, soft")
	f.StringVar(&at.verbs, "verbs", "", "the null device's libibverbs")
	f.StringVar(&at.rdmacm, "rdmacm", "", "the null device's librdmacm")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if err := work(os.Stdin, os.Stdout, at, *name, *size, *conns); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", WorkerArg, *name, err)
		return 1
	}
	return 0
}

// work makes the load, serves rounds of it, and ends it.
func work(in io.Reader, out io.Writer, at place, name, size string, conns int) (err error) {
	begin, opts := loads[name], sizes[size]
	if _, ok := sizes[size]; begin == nil || !ok || conns < 1 {
		return side.Cannot(out, fmt.Errorf("there is no load %q of size %q with %d connections", name, size, conns))
	}
	l, err := begin(at, opts, conns)
	if err != nil {
		return side.Cannot(out, err)
	}
	defer func() {
		if cerr := l.close(); err == nil {
			err = cerr
		}
	}()
	return side.Serve(in, out, func(told rounds.Values) (rounds.Values, error) {
		n := int(told[vOps])
		if n < 1 {
			return nil, fmt.Errorf("%d operations", n)
		}
		found := rounds.Values{vOps: float64(n)}
		runtime.GC() // what the last round left is not this one's
		before, err := cpu.Used()
		if err != nil {
			return nil, err
		}
		if err := l.round(n, found); err != nil {
			return nil, err
		}
		after, err := cpu.Used()
		found[vCPU] = float64(after - before)
		return found, err
	})
}

// start starts this program as a side.
func (p place) start(ctx context.Context, name, size string, conns int) (*side.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, WorkerArg, "-load", name, "-size", size, "-conns", strconv.Itoa(conns),
		"-device", p.device, "-verbs", p.verbs, "-rdmacm", p.rdmacm)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, fmt.Sprintf("%s, %d connections on %s", name, conns, p.device), cmd)
}
