package peers

import (
	"slices"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The units of the table.
const (
	microseconds  = "µs"
	nanoseconds   = "ns"
	perByte       = "ns/B"
	millions      = "M/s"
	gigabytes     = "GB/s"
	perSecondUnit = "1/s"
)

// The goals that several rows have.
var (
	reported      = report.Reported(report.Ratio)
	noAllocations = report.Below(0.001, report.Value, "below 0.001")
)

// trials returns all trials, in the order of the table.
func (s *session) trials() []suite.Trial {
	return slices.Concat([]suite.Trial{s.latency(), s.pingPong(), s.exchange(), s.rate(), s.oneWay()}, s.bandwidths(), []suite.Trial{s.connections()})
}

// value is a figure of one round of a contender.
type value func(rounds.Values) float64

// of returns a result divided by by.
func of(name string, by float64) value {
	return func(v rounds.Values) float64 { return v[name] / by }
}

// per returns the sum of results for each operation, divided by by.
func per(by float64, names ...string) value {
	return func(v rounds.Values) (sum float64) {
		for _, name := range names {
			sum += v[name]
		}
		return sum / max(v[suite.Ops], 1) / by
	}
}

// row makes a row about ours beside base; base is nil for none.
func row(figure, unit string, goal report.Goal, base *contender, based value, ours *contender, v value) suite.Row {
	if base == nil {
		return suite.NewRow(figure, unit, goal, nil, ours.of(v), tell(ours))
	}
	return suite.NewRow(figure, unit, goal, base.of(based), ours.of(v), tell(ours, base))
}

// alone makes a row about ours.
func alone(figure, unit string, goal report.Goal, ours *contender, v value) suite.Row {
	return row(figure, unit, goal, nil, nil, ours, v)
}

// costs returns the rows of the CPU time of each operation on both sides, and of the allocations on
// both.
func costs(figure string, ours *contender) []suite.Row {
	return []suite.Row{
		alone(figure+": CPU per operation, client", nanoseconds, report.Reported(report.Value), ours, per(1, suite.CPU)),
		alone(figure+": CPU per operation, server", nanoseconds, report.Reported(report.Value), ours, per(1, vPeerCPU)),
		alone(figure+": allocations per operation, both sides", "", noAllocations, ours, per(1, suite.Mallocs, vPeerMallocs)),
	}
}
