package overhead

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/cpu"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
)

// WorkerArg is the first argument of this program where it is a side: for main, which
// hands the rest to Worker.
const WorkerArg = "worker"

// load is what a worker does. It lives through all rounds.
type load interface {
	// round does n operations and adds what it found beside their time.
	round(n int, found rounds.Values) error
	// close gives everything back.
	close() error
}

// loads make the loads, by the names that workers are started by.
var loads = map[string]func(m machine) (load, error){
	"futures":        newFutures,
	"grouped":        newGrouped,
	"together":       newTogether,
	"crowd-together": newCrowdTogether,
	"callbacks":      newCallbacks,
	"sync":           newSync,
	"crowd":          newCrowd,
	"crowd-sync":     newCrowdSync,
	"crowd-kept":     newCrowdSyncKept,
	"stamped":        newStamped,
	"stampcrowd":     newStampedCrowd,
	"flooded":        newFlooded,
	"channels":       newFloodedChannels,
	"poller":         newPoller,
	"poller-besides": newPollerBesides,
	"idle":           newIdle,
	"asleep":         newAsleep,
	"futures64k":     newFutures64K,
	"copy64k":        newCopy,
}

// machine is where a worker runs.
type machine struct {
	device        string // null or soft
	profiles      string // the parent's: a folder for a profile of each worker; empty for none
	verbs, rdmacm string // the null device's libraries
}

// warmUp is how many operations run before the first round, at most: pools fill, and
// the runtime's and the processor's guesses settle.
const warmUp = 50_000

// The names of what a round is told and finds, beside those of one load.
const (
	vOps     = "ops"
	vCPU     = "cpu_ns"
	vWall    = "wall_ns"
	vMallocs = "mallocs"
	vPosted  = "posted" // work requests
	vLists   = "lists"  // doorbells
	vPolled  = "polled" // completions
	vP50     = "p50_ns"
	vP99     = "p99_ns"
	vP999    = "p999_ns"
	vMost    = "max_ns"
)

// Worker is this program as a side, with the arguments after WorkerArg. It blocks until
// its input ends, and returns the exit code.
func Worker(args []string) int {
	if len(args) > 0 && args[0] == guestArg {
		return guestWorker(args[1:])
	}
	var m machine
	f := flag.NewFlagSet(WorkerArg, flag.ContinueOnError)
	name := f.String("load", "", strings.Join(slices.Sorted(maps.Keys(loads)), ", "))
	f.StringVar(&m.device, "device", devNull, "null, soft")
	f.StringVar(&m.verbs, "verbs", "", "the null device's libibverbs")
	f.StringVar(&m.rdmacm, "rdmacm", "", "the null device's librdmacm")
	profile := f.String("profile", "", "write a CPU profile of the rounds to this file")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if err := work(os.Stdin, os.Stdout, *name, m, *profile); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", WorkerArg, *name, err)
		return 1
	}
	return 0
}

// work makes the load, serves rounds of it, and ends it.
func work(in io.Reader, out io.Writer, name string, m machine, profile string) (err error) {
	make := loads[name]
	if make == nil {
		return side.Cannot(out, fmt.Errorf("there is no load %q", name))
	}
	l, err := make(m)
	if err != nil {
		return side.Cannot(out, err)
	}
	defer func() {
		if cerr := l.close(); err == nil {
			err = cerr
		}
	}()
	warm := false
	defer pprof.StopCPUProfile() // of nothing, where none was started
	return side.Serve(in, out, func(told rounds.Values) (rounds.Values, error) {
		n := int(told[vOps])
		if n < 1 {
			return nil, fmt.Errorf("%d operations", n)
		}
		if !warm {
			if err := l.round(min(n, warmUp), rounds.Values{}); err != nil {
				return nil, err
			}
			warm = true
			if profile != "" {
				if err := startProfile(profile); err != nil {
					return nil, err
				}
			}
		}
		return measure(l, n)
	})
}

// startProfile starts a profile, which is whole when it is stopped. The file is closed
// by the end of the process.
func startProfile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// measure runs one round and takes its time, and the process's.
func measure(l load, n int) (rounds.Values, error) {
	found := rounds.Values{vOps: float64(n)}
	runtime.GC() // what the last round left is not this one's
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c0, err := cpu.Used()
	if err != nil {
		return nil, err
	}
	t0 := time.Now()
	if err := l.round(n, found); err != nil {
		return nil, err
	}
	wall := time.Since(t0)
	c1, err := cpu.Used()
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	found[vCPU], found[vWall] = float64(c1-c0), float64(wall)
	found[vMallocs] = float64(after.Mallocs - before.Mallocs)
	return found, nil
}

// startWorker starts this program as a side, with more environment.
func startWorker(ctx context.Context, name string, m machine, env ...string) (*side.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, WorkerArg, "-load", name, "-device", m.device, "-verbs", m.verbs, "-rdmacm", m.rdmacm)
	if m.profiles != "" {
		cmd.Args = append(cmd.Args, "-profile", filepath.Join(m.profiles, name+"-"+m.device+".pprof"))
	}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, "ours, "+name+" on "+m.device, cmd)
}
