package peers

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The divisors of the operations of a round: some seconds. In a ping-pong, up to 128 waits of each process allocate what
// Go keeps for later ones (sudogs), so that fewer exchanges would have more than 0.001 allocations a message.
const (
	latencyPart = 5
	quietPart   = 50 // of processes that never spin
)

var (
	median = of(suite.P50, perMicro)
	p99    = of(suite.P99, perMicro)
	mean   = of(vMean, perMicro)
)

// latency returns the rows of WRITEs that a goroutine awaits one by one.
func (s *session) latency() suite.Trial {
	n := s.part(latencyPart)
	word := shape{size: bed.Word}
	udp := s.own("bare UDP", "udp-polling", "udp-echo", word, n)
	udp.note = "bare UDP: a ping-pong of two Go processes that poll with recvfrom and sendto"
	ucx := s.ucx("ucp_am_lat", bed.Word, n)
	ofTCP, ofUDP := s.fabric(fabricTCP, n), s.fabric(fabricUDP, n)
	t := suite.Trial{Sides: sides(udp, ucx, ofTCP, ofUDP)}
	floor, foreign := report.AtMost(1.25, report.Ratio, "at most 1.25 ×"), report.AtMost(0.8, report.Ratio, "at most 0.8 ×")
	for _, c := range []struct {
		runtime, name  string
		floor, foreign report.Goal
	}{
		{latencyConfig, "both polling (latency policy)", floor, foreign},
		{pollingConfig, "both polling (Spin 2^20, one thread each)", floor, foreign},
		{zeroConfig, "default policy", reported, reported},
	} {
		h := word
		h.runtime = c.runtime
		ours := s.own("ours, "+c.runtime, "writes", "target", h, n)
		t.Sides = append(t.Sides, ours.side())
		figure := "8 B WRITE latency, " + c.name
		t.Rows = append(t.Rows,
			row(figure+": median, beside bare UDP", microseconds, c.floor, udp, median, ours, median),
			row(figure+": p99, beside bare UDP", microseconds, reported, udp, p99, ours, p99),
			row(figure+": median, beside UCX tcp ucp_am_lat", microseconds, c.foreign, ucx, median, ours, median),
			row(figure+": p99, beside UCX tcp ucp_am_lat", microseconds, reported, ucx, p99, ours, p99),
			row(figure+": mean, beside fi_pingpong -p "+fabricTCP, microseconds, reported, ofTCP, mean, ours, mean),
			row(figure+": mean, beside fi_pingpong -p "+fabricUDP, microseconds, reported, ofUDP, mean, ours, mean))
		t.Rows = append(t.Rows, costs(figure, ours)...)
	}
	return t
}

// pingPong returns the rows of two goroutines that exchange messages.
func (s *session) pingPong() suite.Trial {
	n := s.part(latencyPart)
	word := shape{size: bed.Word}
	tcp := s.own("Go TCP", "tcp-pings", "tcp-echo", word, n)
	t := suite.Trial{Sides: sides(tcp)}
	for _, c := range []struct {
		runtime, name string
		ops           int
		goal          report.Goal
	}{
		{zeroConfig, "default policy", n, report.AtMost(0.6, report.Ratio, "at most 0.6 ×")},
		{quietConfig, "never spinning (NoCallerDriving, Spin -1)", s.part(quietPart), report.AtMost(1.3, report.Ratio, "at most 1.3 ×")},
	} {
		h := word
		h.runtime = c.runtime
		ours := s.own("ours, "+c.runtime, "messages", "echo", h, c.ops)
		t.Sides = append(t.Sides, ours.side())
		figure := "8 B ping-pong of two goroutines, " + c.name
		// An exchange is two messages, each sent by one side and received by the other.
		perMessage := func(names ...string) value { return per(2, names...) }
		t.Rows = append(t.Rows,
			row(figure+": median, beside Go TCP", microseconds, c.goal, tcp, median, ours, median),
			row(figure+": p99, beside Go TCP", microseconds, reported, tcp, p99, ours, p99),
			row(figure+": CPU per message, client, beside Go TCP", nanoseconds, reported, tcp, perMessage(suite.CPU), ours, perMessage(suite.CPU)),
			row(figure+": CPU per message, server, beside Go TCP", nanoseconds, reported, tcp, perMessage(vPeerCPU), ours, perMessage(vPeerCPU)),
			alone(figure+": allocations per message, both sides", "", noAllocations, ours, perMessage(suite.Mallocs, vPeerMallocs)))
	}
	return t
}
