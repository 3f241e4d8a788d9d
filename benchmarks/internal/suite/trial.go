package suite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// Trial is a set of sides that run in alternating rounds, and the rows made from them.
type Trial struct {
	Sides []Contender
	// Together makes all sides run a round at the same time: for sides that only wait.
	Together bool
	// Most is the largest useful number of rounds; 0 for as many as requested.
	Most int
	Rows []Row
}

// Contender is one side of a trial.
type Contender struct {
	Name string // its key in a round
	// Start starts the side. It blocks until the side is ready.
	Start func(ctx context.Context) (Runner, error)
	// Args returns the side's arguments for a round; so has the results of the sides before it.
	Args func(so rounds.Round) rounds.Values
}

// Runner is a side that was started: a process (*side.Child), or an equivalent. Round blocks for
// one round, Close until the side has ended. One goroutine calls them.
type Runner interface {
	Round(ctx context.Context, told rounds.Values) (rounds.Values, error)
	Close() error
}

// Row describes how a row of the table is computed from the rounds.
type Row struct {
	figure, unit   string
	goal           report.Goal
	baseline, ours func(rounds.Round) float64
	tell           func(rounds.Rounds) (note, why string)
}

// NewRow makes a row. baseline is nil where there is none. tell returns a note on the rounds, and
// the reason if there is no figure although they ran, each empty for none; it may be nil.
func NewRow(figure, unit string, goal report.Goal, baseline, ours func(rounds.Round) float64, tell func(rounds.Rounds) (note, why string)) Row {
	return Row{figure, unit, goal, baseline, ours, tell}
}

// of returns the row of a table; err is the reason why the rounds could not be run.
func (r Row) of(all rounds.Rounds, err error) report.Row {
	var note, why string
	switch {
	case err != nil:
		why = err.Error()
	case r.tell != nil:
		note, why = r.tell(all)
	}
	if why != "" {
		return report.Missing(r.figure, r.unit, r.goal, why)
	}
	var base rounds.Series
	if r.baseline != nil {
		base = all.Series(r.baseline)
	}
	return report.Measured(r.figure, r.unit, r.goal, base, all.Series(r.ours), note)
}

// run runs the trial and returns its rows; rows without figures if it could not be run. It blocks
// for all rounds.
func (t *Trial) run(ctx context.Context, n int, limit time.Duration) (out []report.Row) {
	if t.Most > 0 {
		n = min(n, t.Most)
	}
	all, err := t.rounds(ctx, n, limit)
	for _, r := range t.Rows {
		out = append(out, r.of(all, err))
	}
	return out
}

// rounds starts the sides, runs n rounds, each side within limit, and closes the sides.
func (t *Trial) rounds(ctx context.Context, n int, limit time.Duration) (all rounds.Rounds, err error) {
	var sides []rounds.Side
	for _, c := range t.Sides {
		started, err := c.Start(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, started.Close()) }()
		sides = append(sides, rounds.Side{Name: c.Name, Run: func(ctx context.Context, so rounds.Round) (rounds.Values, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return started.Round(ctx, c.Args(so))
		}})
	}
	if t.Together {
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
