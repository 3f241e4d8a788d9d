package overhead

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// largePart is how many of the operations are done where each moves 64 KiB.
const largePart = 16

// gigabytes is a side's bandwidth with large operations, in units of 10^9 bytes a second.
func gigabytes(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][suite.Ops] * large / max(r[who][suite.Wall], 1) }
}

// trialsOnSoft are the rows of the software RNIC, both ends in one process.
func (s *session) trialsOnSoft() []suite.Trial {
	few := max(1, s.ops/largePart)
	return []suite.Trial{
		{
			Sides: []suite.Contender{s.worker(ours, "futures", bed.Soft, s.ops)},
			Rows: []suite.Row{
				suite.NewRow("software RNIC, 8-byte WRITE rate, 128 deep", millions, report.AtLeast(3, report.Value, "at least 3 M/s"), nil, suite.Rate(ours), nil),
				suite.NewRow("software RNIC, 8-byte WRITE, 128 deep: CPU per operation", nanoseconds, report.Reported(report.Value), nil, suite.Per(ours, suite.CPU), nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(ours, "sync", bed.Soft, s.ops)},
			Rows: []suite.Row{
				suite.NewRow("software RNIC, synchronous 8-byte WRITE latency", microseconds, report.AtMost(2, report.Value, "at most 2 µs"), nil,
					func(r rounds.Round) float64 { return suite.Per(ours, suite.Wall)(r) / perMicro }, nil),
			},
		},
		{
			Sides: []suite.Contender{s.worker(other, "copy64k", bed.Soft, few), s.worker(ours, "futures64k", bed.Soft, few)},
			Rows: []suite.Row{
				suite.NewRow("software RNIC, 64 KiB WRITE bandwidth, 16 deep, beside one memcpy of the same", "GB/s",
					report.AtLeast(0.8, report.Ratio, "at least 0.8 × memcpy"), gigabytes(other), gigabytes(ours), nil),
			},
		},
	}
}

// idleMillis is how long an idle process is watched in a round: as long as the peer's
// silence after which it is asked, so that every round has all that is done then.
const idleMillis = 5000

// percent is what part of one processor a side used, in hundredths.
func percent(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return 100 * r[who][suite.CPU] / max(r[who][suite.Wall], 1) }
}

// idlers are processes that have connections over which nothing goes, beside one that
// has none.
func (s *session) idlers() suite.Trial {
	millis := max(1, min(idleMillis, s.ops))
	goal := report.Below(1, report.Value, "below 1 % of a core")
	const onNull, onSoft = "null", "soft"
	return suite.Trial{
		Together: true,
		Sides: []suite.Contender{s.worker(other, "asleep", bed.Soft, millis),
			s.worker(onSoft, "idle", bed.Soft, millis), s.worker(onNull, "idle", bed.Null, millis)},
		Rows: []suite.Row{
			suite.NewRow("idle CPU, economy policy, 1,000 connections: software RNIC, beside a process that sleeps", "% of a core", goal, percent(other), percent(onSoft), nil),
			suite.NewRow("idle CPU, economy policy, 1,000 connections: null device, beside a process that sleeps", "% of a core", goal, percent(other), percent(onNull), nil),
		},
	}
}
