package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

const usage = `usage: actorpeers [flags]

What a Tell to an actor costs, by one sender and by 16, and an Ask that is awaited,
beside four other actor libraries: medians of alternating rounds, in brackets the
lowest and the highest of them.

`

// workerArg is the first argument of this program where it is a side.
const workerArg = "actorpeers-worker"

// crowd is the number of goroutines that tell at the same time.
const crowd = 16

// askPart is the divisor of the operations of a round for Asks, which take longer.
const askPart = 10

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		os.Exit(worker().Main(os.Args[2:]))
	}
	c := suite.Command{Name: "actorpeers", Usage: usage, Ops: 1_000_000, OpsNote: "; a tenth of them for Ask", RoundTime: time.Minute, Trials: trials}
	os.Exit(c.Main(os.Args[1:], os.Stdout, os.Stderr))
}

func worker() suite.Worker {
	senders, asks := 1, false
	return suite.Worker{
		Arg: workerArg, Loads: names,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&senders, "senders", senders, "goroutines that tell")
			f.BoolVar(&asks, "ask", asks, "ask in place of telling")
		},
		New: func(name string) (suite.Load, error) {
			begin := libraries[name]
			if begin == nil || senders < 1 {
				return nil, fmt.Errorf("there is no library %q with %d senders", name, senders)
			}
			a := &adder{done: make(chan struct{}, 1)}
			l, err := begin(a)
			if err != nil {
				return nil, err
			}
			return &load{library: l, adder: a, senders: senders, asks: asks}, nil
		},
	}
}

// trials returns all trials, in the order of the table.
func trials(ops int) []suite.Trial {
	return []suite.Trial{
		trial("Tell to one actor", ops, report.AtMost(1/1.5, report.Ratio, "at most 0.67 of its time")),
		trial("Tell to one actor by 16 senders", ops, report.AtMost(0.5, report.Ratio, "at most 0.5 of its time"), "-senders", fmt.Sprint(crowd)),
		trial("Ask, awaited", max(1, ops/askPart), report.AtMost(1/1.5, report.Ratio, "at most 0.67 of its time"), "-ask"),
	}
}

func trial(figure string, n int, goal report.Goal, args ...string) suite.Trial {
	var t suite.Trial
	each := func(who string) func(rounds.Round) float64 { return suite.Per(who, suite.Wall) }
	for _, name := range names {
		t.Sides = append(t.Sides, suite.Contender{Name: name, Args: suite.OpsArgs(n), Start: func(ctx context.Context) (suite.Runner, error) {
			return worker().Start(ctx, name, name, args)
		}})
		if name != ours {
			t.Rows = append(t.Rows, suite.NewRow(figure+": time of each, beside "+name, "ns", goal, each(name), each(ours), nil))
		}
	}
	return t
}
