package overhead

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The names of sides.
const (
	ours  = "ours"
	inC   = "c"
	other = "other"
)

// instant selects the null device's instant mode, in the environment of a worker.
const instant = "VERBENA_NULLDEV_MODE=instant"

// Units.
const (
	nanoseconds  = "ns"
	microseconds = "µs"
	millions     = "M/s"
	wrPerList    = "wr/doorbell"
	times        = "×"
)

// perMicro is the number of nanoseconds in a microsecond.
const perMicro = 1e3

// worker returns this program as a side that does ops operations in a round.
func (s *session) worker(name, load, device string, ops int, env ...string) suite.Contender {
	return suite.Contender{Name: name, Args: suite.OpsArgs(ops), Start: func(ctx context.Context) (suite.Runner, error) {
		at, err := bed.On(device)
		if err != nil {
			return nil, err
		}
		args := at.Args()
		if s.profiles != "" {
			args = append(args, "-profile", filepath.Join(s.profiles, load+"-"+device+".pprof"))
		}
		return worker().Start(ctx, "ours, "+load+" on "+device, load, args, env...)
	}}
}

// loop returns the loop in C as a side that repeats the list length and signaling of ours in the
// round.
func (s *session) loop(under int) suite.Contender {
	return suite.Contender{
		Name: inC,
		Start: func(ctx context.Context) (suite.Runner, error) {
			program, err := s.loopInC(ctx)
			if err != nil {
				return nil, err
			}
			return startLoop(ctx, program)
		},
		Args: func(so rounds.Round) rounds.Values {
			list := min(max(suite.PerList(ours)(so), 1), float64(under))
			return rounds.Values{suite.Ops: so[ours][suite.Ops], "depth": float64(under), "list": list, "period": max(suite.PerPolled(ours)(so), 1)}
		},
	}
}

// alike returns a note of the lists and the signaling of both sides, marked if they differ too
// much.
func alike(all rounds.Rounds) (note, why string) {
	of := func(f func(rounds.Round) float64) string { return report.Number(all.Series(f).Median()) }
	text := fmt.Sprintf("lists of %s, one in %s signaled; in C %s and %s", of(suite.PerList(ours)), of(suite.PerPolled(ours)), of(suite.PerList(inC)), of(suite.PerPolled(inC)))
	for _, r := range all {
		for _, value := range []string{suite.Lists, suite.Polled} {
			if a, b := r[ours][value], r[inC][value]; math.Abs(a-b) > max(likeness*a, likeEnough) {
				return text + ": NOT ALIKE", ""
			}
		}
	}
	return text, ""
}

// likeness is the permitted relative difference between the lists and completions of the loop in
// C and ours; likeEnough the permitted absolute one in a round that has few.
const likeness, likeEnough = 0.05, 2

// trialsOnNull returns the rows of the null device.
func (s *session) trialsOnNull() []suite.Trial {
	return []suite.Trial{
		{
			Sides: []suite.Contender{s.worker(ours, "futures", bed.Null, s.ops, instant), s.loop(depth)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: one submitter, 128 deep, futures awaited in batches", nanoseconds,
					report.AtMost(80, report.Difference, "at most 80 ns above the C loop"), suite.Per(inC, suite.CPU), suite.Per(ours, suite.CPU), alike),
				suite.NewRow("allocations per operation: futures awaited in batches", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "together", bed.Null, s.ops, instant), s.loop(depth)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: the same waited for together", nanoseconds,
					report.Reported(report.Difference), suite.Per(inC, suite.CPU), suite.Per(ours, suite.CPU), alike),
				suite.NewRow("allocations per operation: waited for together", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "grouped", bed.Null, s.ops, instant), s.loop(depth)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: the same without a batch, awaited by a group", nanoseconds,
					report.Reported(report.Difference), suite.Per(inC, suite.CPU), suite.Per(ours, suite.CPU), alike),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "callbacks", bed.Null, s.ops, instant), s.loop(depth)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: the same with callbacks on the reactor", nanoseconds,
					report.AtMost(45, report.Difference, "at most 45 ns above the C loop"), suite.Per(inC, suite.CPU), suite.Per(ours, suite.CPU), alike),
				suite.NewRow("allocations per operation: callbacks on the reactor", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "sync", bed.Null, s.ops, instant), s.loop(1)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: one synchronous caller (post, await, repeat)", nanoseconds,
					report.AtMost(250, report.Difference, "at most 250 ns above the C loop's post one, poll one"), suite.Per(inC, suite.CPU), suite.Per(ours, suite.CPU), alike),
				suite.NewRow("null device, latency: one synchronous caller", nanoseconds, report.Reported(report.Difference), suite.Per(inC, suite.Wall), suite.Per(ours, suite.Wall), nil),
				suite.NewRow("allocations per operation: a synchronous caller", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "sync", bed.Null, s.ops, instant), s.worker(ours, "rdmacm", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: rdma_post_write and rdma_get_send_comp of package rdmacm, beside Conn.Do", nanoseconds,
					report.AtMost(40, report.Difference, "at most 40 ns above package runtime"), suite.Per(other, suite.CPU), suite.Per(ours, suite.CPU), nil),
				suite.NewRow("allocations per operation: rdma_post_write and rdma_get_send_comp", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "futures", bed.Null, s.ops, instant), s.worker(ours, "rdmacm-list", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: lists of 128 of package rdmacm, one in 32 signaled, beside futures awaited in batches", nanoseconds,
					report.AtMost(40, report.Difference, "at most 40 ns above package runtime"), suite.Per(other, suite.CPU), suite.Per(ours, suite.CPU), nil),
				suite.NewRow("allocations per operation: lists of package rdmacm", "", report.Below(0.001, report.Value, "below 0.001"), nil, suite.Per(ours, suite.Mallocs), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "futures", bed.Null, s.ops, instant), s.worker(ours, "rdmacm-all", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, CPU per operation: lists of 128 of package rdmacm, all signaled, beside futures awaited in batches", nanoseconds,
					report.Reported(report.Difference), suite.Per(other, suite.CPU), suite.Per(ours, suite.CPU), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "futures", bed.Null, s.ops, instant), s.worker(ours, "crowd", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, 16 goroutines × 8 outstanding: rate, beside one submitter's", millions,
					report.AtLeast(0.8, report.Ratio, "at least 0.8 × one submitter's"), suite.Rate(other), suite.Rate(ours), nil),
				suite.NewRow("null device, 16 goroutines × 8 outstanding: CPU per operation, beside one submitter's", nanoseconds,
					report.AtMost(120, report.Value, "at most 120 ns"), suite.Per(other, suite.CPU), suite.Per(ours, suite.CPU), nil),
				suite.NewRow("null device, 16 goroutines × 8 outstanding: work requests per doorbell, no flush deadline", wrPerList,
					report.AtLeast(8, report.Value, "at least 8"), suite.PerList(other), suite.PerList(ours), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "together", bed.Null, s.ops, instant), s.worker(ours, "crowd-together", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, 16 goroutines × 8 waited for together: rate, beside one submitter's", millions, report.Reported(report.Ratio), suite.Rate(other), suite.Rate(ours), nil),
				suite.NewRow("null device, 16 goroutines × 8 waited for together: CPU per operation, beside one submitter's", nanoseconds,
					report.Reported(report.Value), suite.Per(other, suite.CPU), suite.Per(ours, suite.CPU), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "stamped", bed.Null, s.ops, instant), s.worker(ours, "stampcrowd", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, 16 goroutines × 8 outstanding: p99 from submit to post, beside one submitter's", microseconds,
					report.AtMost(2, report.Ratio, "at most 2 × one submitter's"), suite.Scaled(other, suite.P99, perMicro), suite.Scaled(ours, suite.P99, perMicro), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "crowd-sync", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, 16 goroutines × 1 outstanding: work requests per doorbell", wrPerList, report.Reported(report.Value), nil, suite.PerList(ours), nil),
				suite.NewRow("null device, 16 goroutines × 1 outstanding: latency, median", microseconds, report.Reported(report.Value), nil, suite.Scaled(ours, suite.P50, perMicro), nil),
				suite.NewRow("null device, 16 goroutines × 1 outstanding: latency, p99", microseconds, report.Reported(report.Value), nil, suite.Scaled(ours, suite.P99, perMicro), nil),
				suite.NewRow("null device, 16 goroutines × 1 outstanding: CPU per operation", nanoseconds, report.Reported(report.Value), nil, suite.Per(ours, suite.CPU), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "crowd-sync", bed.Null, s.ops, instant), s.worker(ours, "crowd-kept", bed.Null, s.ops, instant)},
			Rows: []suite.Row{
				suite.NewRow("null device, 16 goroutines × 1 outstanding: work requests per doorbell with a flush deadline of 10 µs, beside none", wrPerList,
					report.Reported(report.Ratio), suite.PerList(other), suite.PerList(ours), nil),
				suite.NewRow("null device, 16 goroutines × 1 outstanding: latency, median, with a flush deadline of 10 µs, beside none", microseconds,
					report.Reported(report.Ratio), suite.Scaled(other, suite.P50, perMicro), suite.Scaled(ours, suite.P50, perMicro), nil),
			},
		},
		s.flooded(),
		s.polled(),
	}
}

// polledPart is the number of operations for which one round trip over TCP is made: it takes
// longer than an operation, and timers run in between.
const polledPart = 200

// polled measures Go's network poller beside a loop that never sleeps.
func (s *session) polled() suite.Trial {
	ops := max(1, s.ops/polledPart)
	return suite.Trial{
		Sides: []suite.Contender{s.worker(other, "poller", bed.Null, ops, instant, twoCores), s.worker(ours, "poller-besides", bed.Null, ops, instant, twoCores)},
		Rows: []suite.Row{
			suite.NewRow("TCP round trip beside a loop that never sleeps (latency policy), on 2 cores: median, beside none", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, suite.P50, perMicro), suite.Scaled(ours, suite.P50, perMicro), nil),
			suite.NewRow("TCP round trip beside a loop that never sleeps (latency policy), on 2 cores: p99, beside none", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, suite.P99, perMicro), suite.Scaled(ours, suite.P99, perMicro), nil),
			suite.NewRow("how late a timer of 1 ms is beside a loop that never sleeps, on 2 cores: median, beside none", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, vLate, perMicro), suite.Scaled(ours, vLate, perMicro), nil),
		},
	}
}

// floodedPart is the divisor of the operations for the probe beside a flood: each waits for its
// share of two processors.
const floodedPart = 50

// twoCores is the environment of a worker on two processors.
const twoCores = "GOMAXPROCS=2"

// flooded measures a synchronous caller beside flooding neighbors, and a channel ping-pong beside
// the same.
func (s *session) flooded() suite.Trial {
	ops := max(1, s.ops/floodedPart)
	return suite.Trial{
		Sides: []suite.Contender{s.worker(other, "channels", bed.Null, ops, instant, twoCores), s.worker(ours, "flooded", bed.Null, ops, instant, twoCores)},
		Rows: []suite.Row{
			suite.NewRow("null device, latency of a synchronous caller while 16 others flood, on 2 cores: p99.9, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, suite.P999, perMicro), suite.Scaled(ours, suite.P999, perMicro), nil),
			suite.NewRow("null device, latency of a synchronous caller while 16 others flood, on 2 cores: maximum, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, suite.Max, perMicro), suite.Scaled(ours, suite.Max, perMicro), nil),
			suite.NewRow("null device, latency of a synchronous caller while 16 others flood, on 2 cores: median, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), suite.Scaled(other, suite.P50, perMicro), suite.Scaled(ours, suite.P50, perMicro), nil),
		},
	}
}
