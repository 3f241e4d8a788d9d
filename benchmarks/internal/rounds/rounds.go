package rounds

import (
	"context"
	"fmt"
	"slices"
)

// Side is one of the sides of a comparison.
type Side struct {
	// Name is its key in a Round.
	Name string
	// Run does the work of one round and returns its results. so has the results of the earlier
	// sides in the same round, so that a baseline can repeat their parameters.
	Run func(ctx context.Context, so Round) (Values, error)
}

// Round holds the results of the sides in one round, by their names.
type Round map[string]Values

// Rounds are all rounds of a comparison, in order.
type Rounds []Round

// Alternate runs n rounds, in each of them the sides one after the other in the given order. It
// blocks until all have run, one fails, or ctx ends; it returns the complete rounds with the
// error.
func Alternate(ctx context.Context, n int, sides ...Side) (Rounds, error) {
	var all Rounds
	for i := range n {
		r := Round{}
		for _, s := range sides {
			if err := ctx.Err(); err != nil {
				return all, err
			}
			v, err := s.Run(ctx, r)
			if err != nil {
				return all, fmt.Errorf("round %d, %s: %w", i+1, s.Name, err)
			}
			r[s.Name] = v
		}
		all = append(all, r)
	}
	return all, nil
}

// Series returns one figure of each round.
func (all Rounds) Series(of func(Round) float64) Series {
	s := make(Series, len(all))
	for i, r := range all {
		s[i] = of(r)
	}
	return s
}

// Series is a figure, round by round.
type Series []float64

// Median returns the middle value, or the mean of the two middle ones; 0 for an empty series.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	// Not half the sum, which may overflow.
	return sorted[mid-1] + (sorted[mid]-sorted[mid-1])/2
}

// Spread returns the lowest and the highest value; 0 for an empty series.
func (s Series) Spread() (low, high float64) {
	if len(s) == 0 {
		return 0, 0
	}
	return slices.Min(s), slices.Max(s)
}

// With combines two series of the same rounds, value by value: the ratio of two sides is that
// within each round, so that disturbances of the machine affect both.
func (s Series) With(o Series, f func(a, b float64) float64) Series {
	out := make(Series, min(len(s), len(o)))
	for i := range out {
		out[i] = f(s[i], o[i])
	}
	return out
}
