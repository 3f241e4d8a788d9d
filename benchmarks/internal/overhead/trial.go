package overhead

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// trial is sides that run in alternating rounds, and the rows that come of it.
type trial struct {
	sides []contender
	// together has all sides run a round at the same time: for those that only wait.
	together bool
	rows     []row
}

// contender is one side of a trial.
type contender struct {
	name  string
	start func(ctx context.Context) (runner, error)
	// told is what it is told for a round; so has what the sides before it found.
	told func(so rounds.Round) rounds.Values
}

// runner is a side that was started: a process (package side), or programs in the guest.
type runner interface {
	Round(ctx context.Context, told rounds.Values) (rounds.Values, error)
	Close() error
}

// row is how a row of the table comes of the rounds.
type row struct {
	figure, unit   string
	goal           report.Goal
	baseline, ours func(rounds.Round) float64 // baseline is nil where there is none
	// note tells how it was; nil for nothing to tell.
	note func(rounds.Rounds) string
}

// roundTime bounds one round of one side: some seconds, on a machine that is busy.
const roundTime = 3 * time.Minute

// run runs the trial and gives the rows that are wanted; rows without figures if it
// could not be run. It blocks for all rounds.
func (t *trial) run(ctx context.Context, n int, wanted func(figure string) bool) []report.Row {
	all, err := t.rounds(ctx, n)
	var out []report.Row
	for _, r := range t.rows {
		if !wanted(r.figure) {
			continue
		}
		if err != nil {
			out = append(out, report.Missing(r.figure, r.unit, r.goal, err.Error()))
			continue
		}
		var base rounds.Series
		if r.baseline != nil {
			base = all.Series(r.baseline)
		}
		note := ""
		if r.note != nil {
			note = r.note(all)
		}
		out = append(out, report.Measured(r.figure, r.unit, r.goal, base, all.Series(r.ours), note))
	}
	return out
}

// rounds starts the sides, runs n rounds, and ends them.
func (t *trial) rounds(ctx context.Context, n int) (all rounds.Rounds, err error) {
	var sides []rounds.Side
	for _, c := range t.sides {
		child, err := c.start(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, child.Close()) }()
		sides = append(sides, rounds.Side{Name: c.name, Run: func(ctx context.Context, so rounds.Round) (rounds.Values, error) {
			ctx, cancel := context.WithTimeout(ctx, roundTime)
			defer cancel()
			return child.Round(ctx, c.told(so))
		}})
	}
	if t.together {
		return atOnce(ctx, n, sides)
	}
	return rounds.Alternate(ctx, n, sides...)
}

// atOnce runs n rounds of all sides at the same time.
func atOnce(ctx context.Context, n int, sides []rounds.Side) (all rounds.Rounds, err error) {
	for range n {
		found, errs := make([]rounds.Values, len(sides)), make([]error, len(sides))
		var wg sync.WaitGroup
		for i, s := range sides {
			wg.Go(func() { found[i], errs[i] = s.Run(ctx, rounds.Round{}) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return all, err
		}
		r := rounds.Round{}
		for i, s := range sides {
			r[s.Name] = found[i]
		}
		all = append(all, r)
	}
	return all, nil
}

// per is a value of a side for each operation.
func per(who, value string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][value] / max(r[who][vOps], 1) }
}

// scaled is a value of a side in another unit: divided by by.
func scaled(who, value string, by float64) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][value] / by }
}

// rate is a side's operations a second, in millions.
func rate(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][vOps] / max(r[who][vWall], 1) * 1e3 }
}

// perList is a side's work requests for each doorbell.
func perList(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][vPosted] / max(r[who][vLists], 1) }
}

// perPolled is a side's work requests for each completion: the signaling period.
func perPolled(who string) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return r[who][vPosted] / max(r[who][vPolled], 1) }
}
