package messages

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// WorkerArg is the first argument of this program where it is a side: for main, which passes the
// rest to Worker.
const WorkerArg = "messages-worker"

// The names of the loads.
const (
	managedOneWay = "managed-oneway"
	rawOneWay     = "raw-oneway"
	writesOneWay  = "writes"
	channelOneWay = "channel-oneway"
	managedPings  = "managed-pings"
	channelPings  = "channel-pings"
	tells         = "tells"
	channelTells  = "channel-tells"
	asks          = "asks"
)

// defaultSenders is the default of -senders.
const defaultSenders = 1

// loads maps the names with which workers are started to the loads. senders is the number of goroutines that tell.
var loads = map[string]func(senders int) (suite.Load, error){
	managedOneWay: newManagedOneWay,
	rawOneWay:     newRawOneWay,
	writesOneWay:  newWrites,
	channelOneWay: newChannelOneWay,
	managedPings:  newManagedPings,
	channelPings:  newChannelPings,
	tells:         newTells,
	channelTells:  newChannelTells,
	asks:          newAsks,
}

// Worker runs this program as a side, with the arguments after WorkerArg. It blocks until its
// input ends, and returns the exit code. One goroutine may call it.
func Worker(args []string) int { return worker().Main(args) }

func worker() suite.Worker {
	senders := defaultSenders
	return suite.Worker{
		Arg: WorkerArg, Loads: slices.Sorted(maps.Keys(loads)),
		Flags: func(f *flag.FlagSet) { f.IntVar(&senders, "senders", senders, "goroutines that tell") },
		New: func(name string) (suite.Load, error) {
			begin := loads[name]
			if begin == nil || senders < 1 {
				return nil, fmt.Errorf("there is no load %q of %d senders", name, senders)
			}
			return begin(senders)
		},
	}
}

// contender returns a side that runs a load, n operations in a round.
func contender(load string, senders, n int) suite.Contender {
	name := fmt.Sprint(load, senders)
	return suite.Contender{Name: name, Args: suite.OpsArgs(n), Start: func(ctx context.Context) (suite.Runner, error) {
		return worker().Start(ctx, name, load, []string{"-senders", fmt.Sprint(senders)})
	}}
}
