package scale

import (
	"context"
	"fmt"
	"strconv"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// sizing is the size of the trials: operations of a round, and the largest number of connections.
type sizing struct{ ops, most int }

// connectRounds is the number of rounds of connecting and closing: each is long.
const connectRounds = 3

// mostOnNull is the capacity of the null device in connections, with both ends in one process:
// its completion queues have a million entries, and each end has a descriptor.
const mostOnNull = 1000

// counts returns the numbers of connections for a device; the last is the requested maximum, also
// if it is not a round number.
func (s sizing) counts(device string) []int {
	most := s.most
	if device == bed.Null {
		most = min(most, mostOnNull)
	}
	var all []int
	for _, n := range []int{1, 100, 1000, defaultMost} {
		if n < most {
			all = append(all, n)
		}
	}
	return append(all, most)
}

// deviceNames are the names of the devices in the table.
var deviceNames = []struct{ device, name string }{{bed.Soft, "software RNIC"}, {bed.Null, "null device"}}

// trials returns all trials, in the order of the table.
func (s sizing) trials() []suite.Trial {
	var all []suite.Trial
	for _, d := range deviceNames {
		for _, size := range []string{"default", "small"} {
			for _, n := range s.counts(d.device) {
				if n >= min(1000, s.most) {
					all = append(all, s.connecting(d.device, d.name, size, n))
				}
			}
		}
		all = append(all, s.waiting(d.device, d.name))
	}
	return all
}

func contender(device, load, size string, n, ops int) suite.Contender {
	return suite.Contender{Name: fmt.Sprint(load, n), Args: suite.OpsArgs(ops), Start: func(ctx context.Context) (suite.Runner, error) {
		at, err := bed.On(device)
		if err != nil {
			return nil, err
		}
		args := append(at.Args(), "-size", size, "-conns", strconv.Itoa(n))
		return worker().Start(ctx, fmt.Sprintf("%s, %d connections on %s", load, n, device), load, args)
	}}
}

// connecting measures making and closing n connections.
func (s sizing) connecting(device, name, size string, n int) suite.Trial {
	w := contender(device, "connect", size, n, 1)
	of := func(value string, by float64) func(rounds.Round) float64 { return suite.Scaled(w.Name, value, by) }
	each := 1024 * float64(n)
	untold := func(all rounds.Rounds) (note, why string) {
		if len(all) > 0 && all[0][w.Name][vNoStatm] > 0 {
			return "", "this system does not report resident memory"
		}
		return "", ""
	}
	figure := func(what string) string {
		return fmt.Sprintf("%s, %d connections, %s options: %s", name, n, size, what)
	}
	goal := report.Reported(report.Value)
	return suite.Trial{
		Most: connectRounds, Sides: []suite.Contender{w},
		Rows: []suite.Row{
			suite.NewRow(figure("connections made"), "1/s", goal, nil, of(vRate, 1), noted(fmt.Sprint(bed.Dialers, " at a time"))),
			suite.NewRow(figure("CPU to make and close each"), "µs", goal, nil, of(suite.CPU, 1e3*float64(n)), nil),
			suite.NewRow(figure("resident memory of each, both ends"), "KiB", goal, nil, of(vResident, each), untold),
			suite.NewRow(figure("Go heap of each, both ends"), "KiB", goal, nil, of(vHeap, each), nil),
			suite.NewRow(figure("mapped off the heap for each, both ends"), "KiB", goal, nil, of(vOff, each), nil),
			suite.NewRow(figure("closing both runtimes"), "s", goal, nil, of(vTurnover, 1e9), nil),
		},
	}
}

// noted returns a fixed note for a row; empty for none.
func noted(text string) func(rounds.Rounds) (note, why string) {
	return func(rounds.Rounds) (note, why string) { return text, "" }
}

// waiting measures one active connection beside 1, 100 and so on that are idle: the cost beside
// one is the baseline of the others.
func (s sizing) waiting(device, name string) suite.Trial {
	var t suite.Trial
	var alone suite.Contender
	for i, n := range s.counts(device) {
		w := contender(device, "latency", "small", n, s.ops)
		t.Sides = append(t.Sides, w)
		if i == 0 {
			alone = w
		}
		for _, v := range []struct {
			value, what, unit string
			by                float64
		}{
			{suite.P50, "median", "µs", 1e3}, {suite.P99, "99th percentile", "µs", 1e3}, {suite.Max, "longest", "µs", 1e3},
			{suite.CPU, "CPU for each", "µs", 1e3 * float64(s.ops)},
		} {
			var base func(rounds.Round) float64
			note := ""
			if i > 0 {
				base, note = suite.Scaled(alone.Name, v.value, v.by), "baseline: 1 idle neighbour"
			}
			t.Rows = append(t.Rows, suite.NewRow(fmt.Sprintf("%s, synchronous 8-byte WRITE, %d idle neighbours: %s", name, n, v.what), v.unit,
				report.Reported(report.Ratio), base, suite.Scaled(w.Name, v.value, v.by), noted(note)))
		}
	}
	return t
}
