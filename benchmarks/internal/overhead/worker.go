package overhead

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// WorkerArg is the first argument of this program where it is a side: for main, which passes the
// rest to Worker.
const WorkerArg = "worker"

// loads maps the names with which workers are started to the loads.
var loads = map[string]func(at bed.Place) (suite.Load, error){
	"futures":        newFutures,
	"grouped":        newGrouped,
	"together":       newTogether,
	"crowd-together": newCrowdTogether,
	"callbacks":      newCallbacks,
	"sync":           newSync,
	"rdmacm":         newCM,
	"rdmacm-list":    newCMList,
	"rdmacm-all":     newCMSignaled,
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

// warmUp is the number of operations before the first round, at most: pools fill, and the
// adaptive limits of the runtime and the branch predictors settle.
const warmUp = 50_000

// Worker runs this program as a side, with the arguments after WorkerArg. It blocks until its
// input ends, and returns the exit code. One goroutine may call it.
func Worker(args []string) int {
	if len(args) > 0 && args[0] == guestArg {
		return guestWorker(args[1:])
	}
	return worker().Main(args)
}

func worker() suite.Worker {
	at, profile := bed.Place{Device: bed.Null}, ""
	return suite.Worker{
		Arg: WorkerArg, Loads: slices.Sorted(maps.Keys(loads)),
		Flags: func(f *flag.FlagSet) {
			at.Flags(f)
			f.StringVar(&profile, "profile", "", "write a CPU profile of the rounds to this file")
		},
		New: func(name string) (suite.Load, error) {
			make := loads[name]
			if make == nil {
				return nil, fmt.Errorf("there is no load %q", name)
			}
			l, err := make(at)
			return profiled{l, profile}, err
		},
	}
}

// profiled is a load that warms up, and whose rounds are in a profile if it has a file name.
type profiled struct {
	suite.Load
	name string
}

// WarmUp implements suite.Warmer. The profile is complete when it is stopped; the end of the
// process closes the file.
func (p profiled) WarmUp(n int) error {
	if err := p.Round(min(n, warmUp), rounds.Values{}); err != nil || p.name == "" {
		return err
	}
	f, err := os.Create(p.name)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// Close implements suite.Load.
func (p profiled) Close() error {
	pprof.StopCPUProfile() // no effect if none was started
	return p.Load.Close()
}
