package pmem

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// sizes are those of the records, in bytes.
var sizes = []int{64, 256, 4096}

// sized returns the name of a result for records of a size.
func sized(name string, size int) string { return fmt.Sprintf("%s_%d", name, size) }

// The names of sides, besides those of ways.
const (
	inC   = "librpma"
	local = "local"
)

// what are the sides of ours in the table.
var what = []struct{ way, name string }{{byRPMA, "package rpma"}, {byPlog, "package plog"}}

// rows returns those of all sizes, ours beside the baseline. Medians have the goal.
func rows(where, baseline, beside string, goal report.Goal) (all []suite.Row) {
	for _, size := range sizes {
		for _, w := range what {
			for _, v := range []struct {
				name, value string
				goal        report.Goal
			}{{"median", suite.P50, goal}, {"p99", suite.P99, report.Reported(report.Ratio)}} {
				of := func(who string) func(rounds.Round) float64 { return suite.Scaled(who, sized(v.value, size), 1e3) }
				figure := fmt.Sprintf("%s, %d B appended by %s: %s, beside %s", where, size, w.name, v.name, beside)
				all = append(all, suite.NewRow(figure, "µs", v.goal, of(baseline), of(w.way), nil))
			}
		}
	}
	return all
}

// apart is the time between appends where they do not follow each other at once. Soft-RoCE works on a thread of the
// kernel, which sleeps when it finds no request. A program that appends again within some microseconds never
// has to wake it; one that computes between appends has to each time.
const apart = 200 * time.Microsecond

// trialsInGuest returns the rows of Soft-RoCE, all of one boot.
func (s *session) trialsInGuest() (all []suite.Trial) {
	for _, m := range []struct{ mode, beside string }{{polling, "librpma, polling"}, {waiting, "librpma, waiting for events"}} {
		for _, g := range []struct {
			gap  time.Duration
			name string
		}{{apart, fmt.Sprintf("%v apart", apart)}, {0, "back to back"}} {
			l := load{mode: m.mode, gap: g.gap, ops: s.ops}
			t := suite.Trial{
				Sides: []suite.Contender{s.guest.Side(inC, librpma(l))},
				Rows:  rows("Soft-RoCE, "+m.mode+", "+g.name, inC, m.beside, report.AtMost(1.3, report.Ratio, "at most 1.3 ×")),
			}
			for _, w := range what {
				t.Sides = append(t.Sides, s.guest.Side(w.way, ours(w.way, l)))
			}
			all = append(all, t)
		}
	}
	return all
}

// trialOnFile returns the rows of the software RNIC on a file, with both ends in one process.
func (s *session) trialOnFile() suite.Trial {
	t := suite.Trial{Rows: rows("file, software RNIC", local, "write and fdatasync", report.Reported(report.Ratio))}
	for _, load := range []string{local, byRPMA, byPlog} {
		t.Sides = append(t.Sides, suite.Contender{
			Name: load,
			Start: func(ctx context.Context) (suite.Runner, error) {
				return worker().Start(ctx, load, load, []string{"-dir", s.dir})
			},
			Args: suite.OpsArgs(s.ops),
		})
	}
	return t
}
