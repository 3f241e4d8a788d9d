package peers

import (
	"fmt"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The trials of this file put messages beside WRITEs of the same size: what receiving adds.

// exchange returns the rows of messages that two polling goroutines exchange one by one.
func (s *session) exchange() suite.Trial {
	n := s.part(latencyPart)
	var t suite.Trial
	for _, c := range []struct{ runtime, name string }{
		{latencyConfig, "both polling (latency policy)"},
		{pollingConfig, "both polling (Spin 2^20, one thread each)"},
	} {
		h := shape{size: bed.Word, runtime: c.runtime}
		writes := s.own("our WRITEs, "+c.runtime, "writes", "target", h, n)
		ours := s.own("our messages, "+c.runtime, "messages", "echo", h, n)
		t.Sides = append(t.Sides, writes.side(), ours.side())
		figure := "8 B message latency, " + c.name
		t.Rows = append(t.Rows,
			row(figure+": median, beside a WRITE", microseconds, report.AtMost(1.3, report.Ratio, "at most 1.3 ×"), writes, median, ours, median),
			row(figure+": p99, beside a WRITE", microseconds, reported, writes, p99, ours, p99))
	}
	return t
}

// oneWay returns the rows of small messages in lists.
func (s *session) oneWay() suite.Trial {
	n := s.part(1)
	h := shape{size: bed.Word, list: rateList, depth: rateDepth}
	writes := s.own("our WRITEs", "stream", "target", h, n)
	ours := s.own("our messages", "sends", "receive", h, n)
	figure := fmt.Sprintf("8 B message rate, lists of %d, %d outstanding", rateList, rateDepth)
	return suite.Trial{Sides: sides(writes, ours), Rows: append([]suite.Row{
		row(figure+", beside WRITEs", millions, report.AtLeast(0.7, report.Ratio, "at least 0.7 ×"), writes, millionOps, ours, millionOps),
	}, costs(figure, ours)...)}
}
