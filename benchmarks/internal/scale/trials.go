package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
)

// trial is workers that run in alternating rounds, and the rows that come of it.
type trial struct {
	rounds  int
	workers []contender
	rows    []row
}

// contender is one worker.
type contender struct {
	name  string
	start func(ctx context.Context) (*side.Child, error)
	ops   int
}

// row is how a row of the table comes of the rounds.
type row struct {
	figure, unit   string
	goal           report.Goal
	baseline, ours func(rounds.Round) float64 // baseline is nil where there is none
	// known tells why there is no figure though the rounds ran; nil, or empty: there is.
	known func(rounds.Rounds) string
	note  string
}

// roundTime bounds one round of one worker: ten thousand connections made and closed on
// a machine that is busy.
const roundTime = 5 * time.Minute

// connectRounds is how many rounds of connecting and closing are enough: each is long.
const connectRounds = 3

// mostOnNull is for how many connections the null device has room, with both ends in one
// process: its completion queues have a million entries, and each end has a descriptor.
const mostOnNull = 1000

// counts are how many connections a device has: as many as are wanted at most, if those
// are no round number.
func (s *suite) counts(device string) []int {
	most := s.most
	if device == devNull {
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

// deviceNames are what the table calls the devices.
var deviceNames = []struct{ device, name string }{{devSoft, "software RNIC"}, {devNull, "null device"}}

// trials are all of them, in the order of the table.
func (s *suite) trials() []trial {
	var all []trial
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

func (s *suite) worker(device, load, size string, n, ops int) contender {
	return contender{fmt.Sprint(load, n), func(ctx context.Context) (*side.Child, error) {
		at, err := s.at(device)
		if err != nil {
			return nil, err
		}
		return at.start(ctx, load, size, n)
	}, ops}
}

// connecting is n connections made and closed.
func (s *suite) connecting(device, name, size string, n int) trial {
	w := s.worker(device, "connect", size, n, 1)
	of := func(value string, by float64) func(rounds.Round) float64 {
		return func(r rounds.Round) float64 { return r[w.name][value] / by }
	}
	each := 1024 * float64(n)
	untold := func(all rounds.Rounds) string {
		if len(all) > 0 && all[0][w.name][vNoStatm] > 0 {
			return "this system does not tell what is resident"
		}
		return ""
	}
	figure := func(what string) string {
		return fmt.Sprintf("%s, %d connections, %s options: %s", name, n, size, what)
	}
	goal := report.Reported(report.Value)
	return trial{
		rounds: min(s.rounds, connectRounds), workers: []contender{w},
		rows: []row{
			{figure("connections made"), "1/s", goal, nil, of(vRate, 1), nil, fmt.Sprint(dialers, " at a time")},
			{figure("CPU to make and close each"), "µs", goal, nil, of(vCPU, 1e3*float64(n)), nil, ""},
			{figure("resident memory of each, both ends"), "KiB", goal, nil, of(vResident, each), untold, ""},
			{figure("Go heap of each, both ends"), "KiB", goal, nil, of(vHeap, each), nil, ""},
			{figure("mapped off the heap for each, both ends"), "KiB", goal, nil, of(vOff, each), nil, ""},
			{figure("closing both runtimes"), "s", goal, nil, of(vTurnover, 1e9), nil, ""},
		},
	}
}

// waiting is one connection that is used beside 1, 100 and so on that are not: what it
// costs beside one is the baseline of the others.
func (s *suite) waiting(device, name string) trial {
	t := trial{rounds: s.rounds}
	var alone contender
	for i, n := range s.counts(device) {
		w := s.worker(device, "latency", "small", n, s.ops)
		t.workers = append(t.workers, w)
		if i == 0 {
			alone = w
		}
		for _, v := range []struct {
			value, what, unit string
			by                float64
		}{
			{vP50, "median", "µs", 1e3}, {vP99, "99th percentile", "µs", 1e3}, {vMost, "longest", "µs", 1e3},
			{vCPU, "CPU for each", "µs", 1e3 * float64(s.ops)},
		} {
			of := func(who string) func(rounds.Round) float64 {
				return func(r rounds.Round) float64 { return r[who][v.value] / v.by }
			}
			r := row{fmt.Sprintf("%s, synchronous 8-byte WRITE, %d idle neighbours: %s", name, n, v.what), v.unit,
				report.Reported(report.Ratio), nil, of(w.name), nil, ""}
			if i > 0 {
				r.baseline, r.note = of(alone.name), "baseline: 1 idle neighbour"
			}
			t.rows = append(t.rows, r)
		}
	}
	return t
}

// run runs the trial and gives its rows; rows without figures if it could not be run.
// It blocks for all rounds.
func (t *trial) run(ctx context.Context) []report.Row {
	all, err := t.alternate(ctx)
	var out []report.Row
	for _, r := range t.rows {
		why := ""
		if err != nil {
			why = err.Error()
		} else if r.known != nil {
			why = r.known(all)
		}
		if why != "" {
			out = append(out, report.Missing(r.figure, r.unit, r.goal, why))
			continue
		}
		var base rounds.Series
		if r.baseline != nil {
			base = all.Series(r.baseline)
		}
		out = append(out, report.Measured(r.figure, r.unit, r.goal, base, all.Series(r.ours), r.note))
	}
	return out
}

// alternate starts the workers, runs the rounds, and ends them.
func (t *trial) alternate(ctx context.Context) (all rounds.Rounds, err error) {
	var sides []rounds.Side
	for _, c := range t.workers {
		child, err := c.start(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, child.Close()) }()
		sides = append(sides, rounds.Side{Name: c.name, Run: func(ctx context.Context, _ rounds.Round) (rounds.Values, error) {
			ctx, cancel := context.WithTimeout(ctx, roundTime)
			defer cancel()
			return child.Round(ctx, rounds.Values{vOps: float64(c.ops)})
		}})
	}
	return rounds.Alternate(ctx, t.rounds, sides...)
}
