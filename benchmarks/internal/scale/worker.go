package scale

import (
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// WorkerArg is the first argument of this program where it is a side: for main, which passes the
// rest to Worker.
const WorkerArg = "scale-worker"

// loads maps the names with which workers are started to the loads.
var loads = map[string]func(at bed.Place, opts verbena.Options, n int) (suite.Load, error){
	"connect": newConnecting,
	"latency": newWaiting,
}

// Worker runs this program as a side, with the arguments after WorkerArg. It blocks until its
// input ends, and returns the exit code. One goroutine may call it.
func Worker(args []string) int { return worker().Main(args) }

func worker() suite.Worker {
	at, size, conns := bed.Place{Device: bed.Soft}, "", 1
	return suite.Worker{
		Arg: WorkerArg, Loads: slices.Sorted(maps.Keys(loads)),
		Flags: func(f *flag.FlagSet) {
			at.Flags(f)
			f.StringVar(&size, "size", "", "default, small")
			f.IntVar(&conns, "conns", conns, "connections")
		},
		New: func(name string) (suite.Load, error) {
			begin := loads[name]
			opts, ok := sizes[size]
			if begin == nil || !ok || conns < 1 {
				return nil, fmt.Errorf("there is no load %q of size %q with %d connections", name, size, conns)
			}
			return begin(at, opts, conns)
		},
	}
}
