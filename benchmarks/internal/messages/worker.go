package messages

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
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
	largeOneWay   = "large-oneway"
	largeWrites   = "large-writes"
	managedPings  = "managed-pings"
	channelPings  = "channel-pings"
	workedPings   = "worked-pings"
	tells         = "tells"
	channelTells  = "channel-tells"
	asks          = "asks"
	nullOneWay    = "null-oneway"
	nullCalls     = "null-calls"
)

// defaultSenders is the default of -senders.
const defaultSenders = 1

// settings is what a load is made with: the number of goroutines that tell, and the device.
type settings struct {
	senders int
	at      bed.Place
}

// loads maps the names with which workers are started to the loads.
var loads = map[string]func(settings) (suite.Load, error){
	managedOneWay: newManagedOneWay,
	rawOneWay:     newRawOneWay,
	writesOneWay:  newWrites,
	channelOneWay: newChannelOneWay,
	largeOneWay:   newLargeOneWay,
	largeWrites:   newLargeWrites,
	managedPings:  newManagedPings,
	channelPings:  newChannelPings,
	workedPings:   newWorkedPings,
	tells:         newTells,
	channelTells:  newChannelTells,
	asks:          newAsks,
	nullOneWay:    newManagedOneWay,
	nullCalls:     newCalls,
}

// Worker runs this program as a side, with the arguments after WorkerArg. It blocks until its
// input ends, and returns the exit code. One goroutine may call it.
func Worker(args []string) int { return worker().Main(args) }

func worker() suite.Worker {
	s := settings{defaultSenders, bed.Place{Device: bed.Soft}}
	return suite.Worker{
		Arg: WorkerArg, Loads: slices.Sorted(maps.Keys(loads)),
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&s.senders, "senders", s.senders, "goroutines that tell")
			s.at.Flags(f)
		},
		New: func(name string) (suite.Load, error) {
			begin := loads[name]
			if begin == nil || s.senders < 1 {
				return nil, fmt.Errorf("there is no load %q of %d senders", name, s.senders)
			}
			return begin(s)
		},
	}
}

// onNull returns a side that runs a load on the null device, n operations in a round.
func onNull(load string, n int) suite.Contender {
	return suite.Contender{Name: load, Args: suite.OpsArgs(n), Start: func(ctx context.Context) (suite.Runner, error) {
		at, err := bed.On(bed.Null)
		if err != nil {
			return nil, err
		}
		return worker().Start(ctx, load, load, at.Args())
	}}
}

// contender returns a side that runs a load, n operations in a round.
func contender(load string, senders, n int) suite.Contender {
	name := fmt.Sprint(load, senders)
	return suite.Contender{Name: name, Args: suite.OpsArgs(n), Start: func(ctx context.Context) (suite.Runner, error) {
		return worker().Start(ctx, name, load, []string{"-senders", fmt.Sprint(senders)})
	}}
}
