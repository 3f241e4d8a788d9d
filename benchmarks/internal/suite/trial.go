package suite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
)

// Trial is sides that run in alternating rounds, and the rows that come of it.
type Trial struct {
	Sides []Contender
	// Together has all sides run a round at the same time: for those that only wait.
	Together bool
	// Most is how many rounds are enough; 0 for as many as are asked for.
	Most int
	Rows []Row
}

// Contender is one side of a trial.
type Contender struct {
	Name string // its key in a round
	// Start starts it. It blocks until the side is ready.
	Start func(ctx context.Context) (Runner, error)
	// Told is what it is told for a round; so has what the sides before it found.
	Told func(so rounds.Round) rounds.Values
}

// Runner is a side that was started: a process (*side.Child), or what does as one. Round
// blocks for one round, Close until the side has ended. One goroutine calls them.
type Runner interface {
	Round(ctx context.Context, told rounds.Values) (rounds.Values, error)
	Close() error
}

// Row is how a row of the table comes of the rounds.
type Row struct {
	figure, unit   string
	goal           report.Goal
	baseline, ours func(rounds.Round) float64
	tell           func(rounds.Rounds) (note, why string)
}

// NewRow makes a row. baseline is nil where there is none. tell says of the rounds how it
// was, and why there is no figure though they ran, each empty for nothing to tell; nil
// tells nothing.
func NewRow(figure, unit string, goal report.Goal, baseline, ours func(rounds.Round) float64, tell func(rounds.Rounds) (note, why string)) Row {
	return Row{figure, unit, goal, baseline, ours, tell}
}

// of is the row of a table; err is why the rounds could not be run.
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

// run runs the trial and gives its rows; rows without figures if it could not be run.
// It blocks for all rounds.
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

// rounds starts the sides, runs n rounds, each side within limit, and ends them.
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
			return started.Round(ctx, c.Told(so))
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
