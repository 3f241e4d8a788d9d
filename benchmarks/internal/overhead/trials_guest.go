package overhead

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// The parts of the operations that are done in the guest: a second's worth of work
// under emulation, and a whole number of lists.
const (
	guestRatePart = 50
	guestPart     = 500
)

// inGuest is a pair of programs in the guest as a side.
func (s *suite) inGuest(name string, programs func(p place, port int) pairing) contender {
	return contender{name,
		func(ctx context.Context) (runner, error) {
			g, err := s.machine(ctx)
			if err != nil {
				return nil, err
			}
			return guestSide{g, programs}, nil
		},
		func(rounds.Round) rounds.Values { return nil },
	}
}

// guestSide runs its programs anew in each round, as whoever measures with them does.
type guestSide struct {
	g        *guest
	programs func(p place, port int) pairing
}

// Round implements runner.
func (s guestSide) Round(ctx context.Context, _ rounds.Values) (found rounds.Values, err error) {
	for range clockTries {
		if found, err = s.g.run(ctx, s.programs(s.g.place, s.g.next())); !errors.Is(err, errClock) {
			break
		}
	}
	return found, err
}

// clockTries is how often a program is run that has measured nothing: three of some 280
// runs had.
const clockTries = 3

// Close implements runner: the machine is the suite's.
func (guestSide) Close() error { return nil }

// value is one that a side found, as it is.
func value(who, name string) func(rounds.Round) float64 { return scaled(who, name, 1) }

// trialsInGuest are the rows of Soft-RoCE, all of one boot.
func (s *suite) trialsInGuest() []trial {
	few := max(1, s.ops/guestPart)
	many := max(1, s.ops/guestRatePart/batch) * batch
	theirs := func(program string, args ...string) contender {
		return s.inGuest(other, func(p place, port int) pairing {
			return perftest(p, port, program, columnTypical, vP50, perMicro, append([]string{"-n", itoa(few)}, args...)...)
		})
	}
	talk := func(what string, n int) contender {
		return s.inGuest(ours, func(p place, port int) pairing { return self(p, port, what, n) })
	}
	rateInC := s.inGuest(other, func(p place, port int) pairing {
		return perftest(p, port, "ib_write_bw", columnMsgRate, vRate, 1, "-n", itoa(many), "-t", itoa(depth), "-l", itoa(batch))
	})
	inFabric := s.inGuest(other, func(p place, port int) pairing { return fabric(p, port, few) })
	latency := func(name string) func(who string) func(rounds.Round) float64 {
		return func(who string) func(rounds.Round) float64 { return scaled(who, name, perMicro) }
	}
	typical, mean := latency(vP50), latency(vMean)
	most := report.AtMost(1.15, report.Ratio, "at most 1.15 ×")
	return []trial{
		{sides: []contender{rateInC, talk("rate", many)}, rows: []row{
			{"Soft-RoCE, 8-byte WRITE rate, 128 deep, beside ib_write_bw -t 128 -l 32", millions,
				report.AtLeast(0.95, report.Ratio, "at least 0.95 ×"), value(other, vRate), value(ours, vRate), nil},
		}},
		{sides: []contender{theirs("ib_send_lat"), talk("sends", few)}, rows: []row{
			{"Soft-RoCE, 8-byte synchronous send/recv latency, raw connection, beside ib_send_lat", microseconds, most, typical(other), typical(ours), nil},
		}},
		{sides: []contender{theirs("ib_send_lat"), talk("messages", few)}, rows: []row{
			{"Soft-RoCE, 8-byte message latency, managed connection, beside ib_send_lat", microseconds, report.Reported(report.Ratio), typical(other), typical(ours), nil},
		}},
		{sides: []contender{theirs("ib_write_lat"), talk("writes", few)}, rows: []row{
			{"Soft-RoCE, 8-byte synchronous WRITE latency, beside ib_write_lat", microseconds, most, typical(other), typical(ours), nil},
		}},
		{sides: []contender{inFabric, talk("messages", few)}, rows: []row{
			{"Soft-RoCE, 8-byte ping-pong, managed connection, beside fi_pingpong -p verbs -e msg", microseconds,
				report.AtMost(0.7, report.Ratio, "at most 0.7 ×"), mean(other), mean(ours), nil},
		}},
	}
}
