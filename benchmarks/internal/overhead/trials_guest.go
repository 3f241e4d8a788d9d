package overhead

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The divisors of the operations in the guest: a second's worth of work under emulation, and a
// whole number of lists.
const (
	guestRatePart = 50
	guestPart     = 500
)

// trialsInGuest returns the rows of Soft-RoCE, all of one boot.
func (s *session) trialsInGuest() []suite.Trial {
	few := max(1, s.ops/guestPart)
	many := max(1, s.ops/guestRatePart/batch) * batch
	theirs := func(program string, args ...string) suite.Contender {
		return s.guest.Side(other, func(p guest.Place, port int) guest.Pair {
			return perftest(p, port, program, columnTypical, suite.P50, perMicro, append([]string{"-n", itoa(few)}, args...)...)
		})
	}
	talk := func(what string, n int) suite.Contender {
		return s.guest.Side(ours, func(p guest.Place, port int) guest.Pair { return self(p, port, what, n) })
	}
	rateInC := s.guest.Side(other, func(p guest.Place, port int) guest.Pair {
		return perftest(p, port, "ib_write_bw", columnMsgRate, vRate, 1, "-n", itoa(many), "-t", itoa(depth), "-l", itoa(batch))
	})
	inFabric := s.guest.Side(other, func(p guest.Place, port int) guest.Pair { return fabric(p, port, few) })
	latency := func(name string) func(who string) func(rounds.Round) float64 {
		return func(who string) func(rounds.Round) float64 { return suite.Scaled(who, name, perMicro) }
	}
	typical, mean := latency(suite.P50), latency(vMean)
	most := report.AtMost(1.15, report.Ratio, "at most 1.15 ×")
	return []suite.Trial{
		{Sides: []suite.Contender{rateInC, talk("rate", many)}, Rows: []suite.Row{
			suite.NewRow("Soft-RoCE, 8-byte WRITE rate, 128 deep, beside ib_write_bw -t 128 -l 32", millions,
				report.AtLeast(0.95, report.Ratio, "at least 0.95 ×"), suite.Scaled(other, vRate, 1), suite.Scaled(ours, vRate, 1), nil),
		}},
		{Sides: []suite.Contender{theirs("ib_send_lat"), talk("sends", few)}, Rows: []suite.Row{
			suite.NewRow("Soft-RoCE, 8-byte synchronous send/recv latency, raw connection, beside ib_send_lat", microseconds, most, typical(other), typical(ours), nil),
		}},
		{Sides: []suite.Contender{theirs("ib_send_lat"), talk("messages", few)}, Rows: []suite.Row{
			suite.NewRow("Soft-RoCE, 8-byte message latency, managed connection, beside ib_send_lat", microseconds, report.Reported(report.Ratio), typical(other), typical(ours), nil),
		}},
		{Sides: []suite.Contender{theirs("ib_write_lat"), talk("writes", few)}, Rows: []suite.Row{
			suite.NewRow("Soft-RoCE, 8-byte synchronous WRITE latency, beside ib_write_lat", microseconds, most, typical(other), typical(ours), nil),
		}},
		{Sides: []suite.Contender{inFabric, talk("messages", few)}, Rows: []suite.Row{
			suite.NewRow("Soft-RoCE, 8-byte ping-pong, managed connection, beside fi_pingpong -p verbs -e msg", microseconds,
				report.AtMost(0.7, report.Ratio, "at most 0.7 ×"), mean(other), mean(ours), nil),
		}},
	}
}
