package messages

import (
	"fmt"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// tripPart is the divisor of the operations of a round for round trips, which take longer.
const tripPart = 10

// largePart is the divisor of the operations of a round for large messages.
const largePart = 1000

// crowd is the number of goroutines that tell at the same time.
const crowd = 16

// The units of the table.
const (
	microseconds = "µs"
	nanoseconds  = "ns"
	millions     = "M/s"
)

var (
	reported      = report.Reported(report.Ratio)
	noAllocations = report.Below(0.001, report.Value, "below 0.001")
)

// trials returns all trials, in the order of the table.
func trials(ops int) []suite.Trial {
	return []suite.Trial{
		oneWayTrial(ops, "managed", managedOneWay,
			report.AtLeast(5, report.Value, "at least 5 M/s"), report.AtMost(220, report.Value, "at most 220 ns")),
		oneWayTrial(ops, "raw", rawOneWay,
			report.AtLeast(7, report.Value, "at least 7 M/s"), report.AtMost(160, report.Value, "at most 160 ns")),
		large(max(largeDepth, ops/largePart)),
		pingPong(max(1, ops/tripPart)),
		onNullOneWay(ops),
		onNullCalls(max(1, ops/tripPart)),
		tell(ops, 1, report.AtMost(40, report.Value, "at most 40 ns")),
		tell(ops, crowd, reported),
		ask(max(1, ops/tripPart)),
	}
}

func oneWayTrial(n int, name, load string, rate, cpu report.Goal) suite.Trial {
	ours, plain, channel := contender(load, 1, n), contender(writesOneWay, 1, n), contender(channelOneWay, 1, n)
	figure := fmt.Sprintf("8 B messages one way, %s connection", name)
	row := func(what, unit string, goal report.Goal, base suite.Contender, of func(who string) func(rounds.Round) float64) suite.Row {
		return suite.NewRow(figure+": "+what, unit, goal, of(base.Name), of(ours.Name), nil)
	}
	return suite.Trial{Sides: []suite.Contender{ours, plain, channel}, Rows: []suite.Row{
		row("rate, beside WRITEs", millions, rate, plain, suite.Rate),
		row("rate, beside a channel", millions, reported, channel, suite.Rate),
		row("CPU of each, both ends, beside WRITEs", nanoseconds, cpu, plain, cpuOf),
		row("CPU of each, both ends, beside a channel", nanoseconds, reported, channel, cpuOf),
		allocations(figure, ours),
	}}
}

func large(n int) suite.Trial {
	ours, plain := contender(largeOneWay, 1, n), contender(largeWrites, 1, n)
	const figure = "1 MiB messages one way, managed connection"
	each := func(who string) func(rounds.Round) float64 {
		return func(r rounds.Round) float64 { return suite.Per(who, suite.Wall)(r) / 1e3 }
	}
	return suite.Trial{Sides: []suite.Contender{ours, plain}, Rows: []suite.Row{
		suite.NewRow(figure+": time of each, beside WRITEs", microseconds, report.AtMost(1/0.9, report.Ratio, "at least 0.9 × the rate of WRITEs"), each(plain.Name), each(ours.Name), nil),
		suite.NewRow(figure+": CPU of each, both ends, beside WRITEs", nanoseconds, reported, cpuOf(plain.Name), cpuOf(ours.Name), nil),
	}}
}

func cpuOf(who string) func(rounds.Round) float64 { return suite.Per(who, suite.CPU) }

func allocations(figure string, ours suite.Contender) suite.Row {
	return suite.NewRow(figure+": allocations of each", "", noAllocations, nil, suite.Per(ours.Name, suite.Mallocs), nil)
}

// inMicroseconds returns a result of a side, which is in nanoseconds.
func inMicroseconds(value string) func(who string) func(rounds.Round) float64 {
	return func(who string) func(rounds.Round) float64 { return suite.Scaled(who, value, 1e3) }
}

func pingPong(n int) suite.Trial {
	ours, channels, floor := contender(managedPings, 1, n), contender(channelPings, 1, n), contender(workedPings, 1, n)
	const figure = "8 B ping-pong of two goroutines, managed connection"
	row := func(what, unit string, goal report.Goal, of func(who string) func(rounds.Round) float64) suite.Row {
		return suite.NewRow(figure+": "+what+", beside channels", unit, goal, of(channels.Name), of(ours.Name), nil)
	}
	besideWork := func(what string, of func(who string) func(rounds.Round) float64) suite.Row {
		return suite.NewRow(fmt.Sprintf("%s: %s, beside channels with %v of work at each end", figure, what, endWork), microseconds, reported, of(floor.Name), of(ours.Name), nil)
	}
	return suite.Trial{Sides: []suite.Contender{ours, channels, floor}, Rows: []suite.Row{
		row("median", microseconds, report.AtMost(1.6, report.Value, "at most 1.6 µs"), inMicroseconds(suite.P50)),
		row("p99", microseconds, report.AtMost(4, report.Value, "at most 4 µs"), inMicroseconds(suite.P99)),
		besideWork("median", inMicroseconds(suite.P50)),
		besideWork("p99", inMicroseconds(suite.P99)),
		row("CPU of a round trip", nanoseconds, reported, cpuOf),
		allocations(figure, ours),
	}}
}

func onNullOneWay(n int) suite.Trial {
	ours, c := onNull(nullOneWay, n), twoSided(n, listLen)
	return suite.Trial{Sides: []suite.Contender{ours, c}, Rows: []suite.Row{
		suite.NewRow("null device, 8 B messages one way: CPU of each, both ends, above a loop in C", nanoseconds,
			report.AtMost(150, report.Difference, "at most 150 ns above the C loop"), cpuOf(inC), cpuOf(ours.Name), nil),
	}}
}

func onNullCalls(n int) suite.Trial {
	ours, c := onNull(nullCalls, n), twoSided(n, 0)
	trip := func(who string) func(rounds.Round) float64 { return suite.Per(who, suite.Wall) }
	const figure = "null device, ping-pong by Call and Reply"
	return suite.Trial{Sides: []suite.Contender{ours, c}, Rows: []suite.Row{
		suite.NewRow(figure+": a round trip, above a loop in C", nanoseconds,
			report.AtMost(500, report.Difference, "at most 500 ns above the C loop"), trip(inC), trip(ours.Name), nil),
		allocations(figure, ours),
	}}
}

func tell(n, senders int, goal report.Goal) suite.Trial {
	ours, channel := contender(tells, senders, n), contender(channelTells, senders, n)
	figure := fmt.Sprintf("Tell to one actor, %d senders", senders)
	each := func(who string) func(rounds.Round) float64 { return suite.Per(who, suite.Wall) }
	return suite.Trial{Sides: []suite.Contender{ours, channel}, Rows: []suite.Row{
		suite.NewRow(figure+": time of each, beside a channel", nanoseconds, goal, each(channel.Name), each(ours.Name), nil),
		suite.NewRow(figure+": CPU of each, beside a channel", nanoseconds, reported, cpuOf(channel.Name), cpuOf(ours.Name), nil),
		allocations(figure, ours),
	}}
}

func ask(n int) suite.Trial {
	ours, channels := contender(asks, 1, n), contender(channelPings, 1, n)
	const figure = "Ask of an actor"
	half := report.AtMost(0.5, report.Value, "at most 0.5 µs")
	return suite.Trial{Sides: []suite.Contender{ours, channels}, Rows: []suite.Row{
		suite.NewRow(figure+": median, beside channels", microseconds, half, inMicroseconds(suite.P50)(channels.Name), inMicroseconds(suite.P50)(ours.Name), nil),
		suite.NewRow(figure+": CPU of each, beside channels", nanoseconds, reported, cpuOf(channels.Name), cpuOf(ours.Name), nil),
		allocations(figure, ours),
	}}
}
