package overhead

import (
	"context"
	"fmt"
	"math"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
)

// The names of sides.
const (
	ours  = "ours"
	inC   = "c"
	other = "other"
)

// instant has the null device be the yardstick, in the environment of a worker.
const instant = "VERBENA_NULLDEV_MODE=instant"

// Units.
const (
	nanoseconds  = "ns"
	microseconds = "µs"
	millions     = "M/s"
	wrPerList    = "wr/doorbell"
	times        = "×"
)

// perMicro is the nanoseconds of a microsecond.
const perMicro = 1e3

// worker is this program as a side that does ops operations in a round.
func (s *suite) worker(name, load, device string, ops int, env ...string) contender {
	return contender{name,
		func(ctx context.Context) (runner, error) {
			m := machine{device: device, profiles: s.profiles}
			if device == devNull {
				libs, err := s.nullDevice()
				if err != nil {
					return nil, err
				}
				m.verbs, m.rdmacm = libs.Verbs, libs.RDMACM
			}
			return started(startWorker(ctx, load, m, env...))
		},
		func(rounds.Round) rounds.Values { return rounds.Values{vOps: float64(ops)} },
	}
}

// started is a child as a runner; no child is none.
func started(c *side.Child, err error) (runner, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// loop is the loop in C as a side that does as ours did in the round.
func (s *suite) loop(under int) contender {
	return contender{inC,
		func(ctx context.Context) (runner, error) {
			program, err := s.loopInC(ctx)
			if err != nil {
				return nil, err
			}
			return started(startLoop(ctx, program))
		},
		func(so rounds.Round) rounds.Values {
			list := min(max(perList(ours)(so), 1), float64(under))
			return rounds.Values{vOps: so[ours][vOps], "depth": float64(under), "list": list, "period": max(perPolled(ours)(so), 1)}
		},
	}
}

// alike tells what lists and signaling both sides had.
func alike(all rounds.Rounds) string {
	of := func(f func(rounds.Round) float64) string { return report.Number(all.Series(f).Median()) }
	text := fmt.Sprintf("lists of %s, one in %s signaled; in C %s and %s", of(perList(ours)), of(perPolled(ours)), of(perList(inC)), of(perPolled(inC)))
	for _, r := range all {
		for _, value := range []string{vLists, vPolled} {
			if a, b := r[ours][value], r[inC][value]; math.Abs(a-b) > max(likeness*a, likeEnough) {
				return text + ": NOT ALIKE"
			}
		}
	}
	return text
}

// likeness is how far the lists and the completions of the loop in C may be from ours,
// as a part of them; likeEnough is how far in a round that has few.
const likeness, likeEnough = 0.05, 2

// trialsOnNull are the rows of the null device.
func (s *suite) trialsOnNull() []trial {
	return []trial{
		{
			sides: []contender{s.worker(ours, "futures", devNull, s.ops, instant), s.loop(depth)},
			rows: []row{
				{"null device, CPU per operation: one submitter, 128 deep, futures awaited in batches", nanoseconds,
					report.AtMost(80, report.Difference, "at most 80 ns above the C loop"), per(inC, vCPU), per(ours, vCPU), alike},
				{"allocations per operation: futures awaited in batches", "", report.Below(0.001, report.Value, "below 0.001"), nil, per(ours, vMallocs), nil},
			},
		},
		{
			sides: []contender{s.worker(ours, "together", devNull, s.ops, instant), s.loop(depth)},
			rows: []row{
				{"null device, CPU per operation: the same waited for together", nanoseconds,
					report.Reported(report.Difference), per(inC, vCPU), per(ours, vCPU), alike},
				{"allocations per operation: waited for together", "", report.Below(0.001, report.Value, "below 0.001"), nil, per(ours, vMallocs), nil},
			},
		},
		{
			sides: []contender{s.worker(ours, "grouped", devNull, s.ops, instant), s.loop(depth)},
			rows: []row{
				{"null device, CPU per operation: the same without a batch, awaited by a group", nanoseconds,
					report.Reported(report.Difference), per(inC, vCPU), per(ours, vCPU), alike},
			},
		},
		{
			sides: []contender{s.worker(ours, "callbacks", devNull, s.ops, instant), s.loop(depth)},
			rows: []row{
				{"null device, CPU per operation: the same with callbacks on the reactor", nanoseconds,
					report.AtMost(45, report.Difference, "at most 45 ns above the C loop"), per(inC, vCPU), per(ours, vCPU), alike},
				{"allocations per operation: callbacks on the reactor", "", report.Below(0.001, report.Value, "below 0.001"), nil, per(ours, vMallocs), nil},
			},
		},
		{
			sides: []contender{s.worker(ours, "sync", devNull, s.ops, instant), s.loop(1)},
			rows: []row{
				{"null device, CPU per operation: one synchronous caller (post, await, repeat)", nanoseconds,
					report.AtMost(250, report.Difference, "at most 250 ns above the C loop's post one, poll one"), per(inC, vCPU), per(ours, vCPU), alike},
				{"null device, latency: one synchronous caller", nanoseconds, report.Reported(report.Difference), per(inC, vWall), per(ours, vWall), nil},
				{"allocations per operation: a synchronous caller", "", report.Below(0.001, report.Value, "below 0.001"), nil, per(ours, vMallocs), nil},
			},
		},
		{
			sides: []contender{s.worker(other, "futures", devNull, s.ops, instant), s.worker(ours, "crowd", devNull, s.ops, instant)},
			rows: []row{
				{"null device, 16 goroutines × 8 outstanding: rate, beside one submitter's", millions,
					report.AtLeast(0.8, report.Ratio, "at least 0.8 × one submitter's"), rate(other), rate(ours), nil},
				{"null device, 16 goroutines × 8 outstanding: CPU per operation, beside one submitter's", nanoseconds,
					report.AtMost(120, report.Value, "at most 120 ns"), per(other, vCPU), per(ours, vCPU), nil},
				{"null device, 16 goroutines × 8 outstanding: work requests per doorbell, no flush deadline", wrPerList,
					report.AtLeast(8, report.Value, "at least 8"), perList(other), perList(ours), nil},
			},
		},
		{
			sides: []contender{s.worker(other, "together", devNull, s.ops, instant), s.worker(ours, "crowd-together", devNull, s.ops, instant)},
			rows: []row{
				{"null device, 16 goroutines × 8 waited for together: rate, beside one submitter's", millions, report.Reported(report.Ratio), rate(other), rate(ours), nil},
				{"null device, 16 goroutines × 8 waited for together: CPU per operation, beside one submitter's", nanoseconds,
					report.Reported(report.Value), per(other, vCPU), per(ours, vCPU), nil},
			},
		},
		{
			sides: []contender{s.worker(other, "stamped", devNull, s.ops, instant), s.worker(ours, "stampcrowd", devNull, s.ops, instant)},
			rows: []row{
				{"null device, 16 goroutines × 8 outstanding: p99 from submit to post, beside one submitter's", microseconds,
					report.AtMost(2, report.Ratio, "at most 2 × one submitter's"), scaled(other, vP99, perMicro), scaled(ours, vP99, perMicro), nil},
			},
		},
		{
			sides: []contender{s.worker(ours, "crowd-sync", devNull, s.ops, instant)},
			rows: []row{
				{"null device, 16 goroutines × 1 outstanding: work requests per doorbell", wrPerList, report.Reported(report.Value), nil, perList(ours), nil},
				{"null device, 16 goroutines × 1 outstanding: latency, median", microseconds, report.Reported(report.Value), nil, scaled(ours, vP50, perMicro), nil},
				{"null device, 16 goroutines × 1 outstanding: latency, p99", microseconds, report.Reported(report.Value), nil, scaled(ours, vP99, perMicro), nil},
				{"null device, 16 goroutines × 1 outstanding: CPU per operation", nanoseconds, report.Reported(report.Value), nil, per(ours, vCPU), nil},
			},
		},
		{
			sides: []contender{s.worker(other, "crowd-sync", devNull, s.ops, instant), s.worker(ours, "crowd-kept", devNull, s.ops, instant)},
			rows: []row{
				{"null device, 16 goroutines × 1 outstanding: work requests per doorbell with a flush deadline of 10 µs, beside none", wrPerList,
					report.Reported(report.Ratio), perList(other), perList(ours), nil},
				{"null device, 16 goroutines × 1 outstanding: latency, median, with a flush deadline of 10 µs, beside none", microseconds,
					report.Reported(report.Ratio), scaled(other, vP50, perMicro), scaled(ours, vP50, perMicro), nil},
			},
		},
		s.flooded(),
		s.polled(),
	}
}

// polledPart is how many of the operations a round trip over TCP is done for: it takes
// longer than an operation, and timers go between.
const polledPart = 200

// polled is Go's network poller beside a loop that never sleeps.
func (s *suite) polled() trial {
	ops := max(1, s.ops/polledPart)
	return trial{
		sides: []contender{s.worker(other, "poller", devNull, ops, instant, twoCores), s.worker(ours, "poller-besides", devNull, ops, instant, twoCores)},
		rows: []row{
			{"TCP round trip beside a loop that never sleeps (latency policy), on 2 cores: median, beside none", microseconds,
				report.Reported(report.Ratio), scaled(other, vP50, perMicro), scaled(ours, vP50, perMicro), nil},
			{"TCP round trip beside a loop that never sleeps (latency policy), on 2 cores: p99, beside none", microseconds,
				report.Reported(report.Ratio), scaled(other, vP99, perMicro), scaled(ours, vP99, perMicro), nil},
			{"how late a timer of 1 ms is beside a loop that never sleeps, on 2 cores: median, beside none", microseconds,
				report.Reported(report.Ratio), scaled(other, vLate, perMicro), scaled(ours, vLate, perMicro), nil},
		},
	}
}

// floodedPart is how many of the operations the probe beside a flood does: each waits
// for its share of two processors.
const floodedPart = 50

// twoCores is the environment of a worker on two processors.
const twoCores = "GOMAXPROCS=2"

// flooded is a synchronous caller beside neighbours that flood, and a channel ping-pong
// beside the same.
func (s *suite) flooded() trial {
	ops := max(1, s.ops/floodedPart)
	return trial{
		sides: []contender{s.worker(other, "channels", devNull, ops, instant, twoCores), s.worker(ours, "flooded", devNull, ops, instant, twoCores)},
		rows: []row{
			{"null device, latency of a synchronous caller while 16 others flood, on 2 cores: p99.9, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), scaled(other, vP999, perMicro), scaled(ours, vP999, perMicro), nil},
			{"null device, latency of a synchronous caller while 16 others flood, on 2 cores: maximum, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), scaled(other, vMost, perMicro), scaled(ours, vMost, perMicro), nil},
			{"null device, latency of a synchronous caller while 16 others flood, on 2 cores: median, beside a channel ping-pong", microseconds,
				report.Reported(report.Ratio), scaled(other, vP50, perMicro), scaled(ours, vP50, perMicro), nil},
		},
	}
}
