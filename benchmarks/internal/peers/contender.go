package peers

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// contender is a contestant of one trial: two processes that are started in each round.
//
//	runs ──> runs ──> failed: skipped in all later rounds
//
// The failure of one contender leaves the figures of the others. One goroutine uses it.
type contender struct {
	name string
	// run runs both processes for one round and returns the results.
	run func(ctx context.Context) (rounds.Values, error)
	// note says what is run, below the first row about it; empty for ours, and when it was said.
	note string
	// why is the reason why there are no figures; nil for none.
	why error
}

// errLeftOut is the reason of contenders that -with does not select.
var errLeftOut = errors.New("left out by -with")

// contender makes a contender.
func (s *session) contender(name, note string, run func(ctx context.Context) (rounds.Values, error)) *contender {
	c := &contender{name: name, run: run, note: note}
	if !s.with.MatchString(name) {
		c.why = errLeftOut
	}
	return c
}

// side returns c as a side of a trial.
func (c *contender) side() suite.Contender {
	return suite.Contender{
		Name:  c.name,
		Start: func(context.Context) (suite.Runner, error) { return c, nil },
		Args:  func(rounds.Round) rounds.Values { return nil },
	}
}

// Round implements suite.Runner. A failure is kept for the rows, and is not returned.
func (c *contender) Round(ctx context.Context, _ rounds.Values) (rounds.Values, error) {
	found := rounds.Values{}
	if c.why == nil {
		if found, c.why = c.run(ctx); c.why != nil {
			found = rounds.Values{}
		}
	}
	return found, nil
}

// Close implements suite.Runner: no process outlives its round.
func (c *contender) Close() error { return nil }

// of returns a figure of the contender.
func (c *contender) of(value func(rounds.Values) float64) func(rounds.Round) float64 {
	return func(r rounds.Round) float64 { return value(r[c.name]) }
}

// sides returns the sides of a trial.
func sides(all ...*contender) (out []suite.Contender) {
	for _, c := range all {
		out = append(out, c.side())
	}
	return out
}

// tell returns the note of a row about these contenders, or the reason why it has no figure.
func tell(all ...*contender) func(rounds.Rounds) (note, why string) {
	return func(rounds.Rounds) (note, why string) {
		for _, c := range all {
			if c.why != nil {
				return "", c.name + ": not run: " + c.why.Error()
			}
		}
		for _, c := range all {
			if c.note != "" {
				note, c.note = c.note, ""
			}
		}
		return note, ""
	}
}
