package overhead

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// largePart is the divisor of the operations where each moves 64 KiB.
const largePart = 16

// gigabytes returns a side's bandwidth with large operations, in units of 10^9 bytes a second.
func gigabytes(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][suite.Ops] * large / max(r[who][suite.Wall], 1) }
}

// trialsOnSoft returns the rows of the software RNIC, both ends in one process.
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

// idleMillis is how long an idle process is observed in a round: the silence after which the peer
// is probed, so that each round includes that work.
const idleMillis = 5000

// percent returns the share of one processor that a side used, in hundredths.
func percent(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return 100 * r[who][suite.CPU] / max(r[who][suite.Wall], 1) }
}

// idlers measures processes with unused connections, beside one without connections.
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
