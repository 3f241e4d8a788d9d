package report

import "github.com/verbena-rdma/verbena/benchmarks/internal/rounds"

// Of selects the number of a row that a goal is about, and that the table shows.
type Of int

// The numbers of a row.
const (
	Value      Of = iota // ours, regardless of the baseline
	Ratio                // ours divided by the baseline
	Difference           // ours minus the baseline
)

// Goal is the requirement on a row. With the zero Goal the row is only reported.
type Goal struct {
	// Sentence describes it.
	Sentence string
	of       Of
	// holds judges the median; nil for no goal.
	holds func(float64) bool
}

// AtMost requires a row's number to be at most limit. The sentence is for the reader.
func AtMost(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v <= limit }}
}

// Below requires a row's number to be less than limit.
func Below(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v < limit }}
}

// AtLeast requires a row's number to be at least limit.
func AtLeast(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v >= limit }}
}

// Reported is no goal: a measured row is met. The row shows of beside its figures.
func Reported(of Of) Goal { return Goal{Sentence: "reported, no goal", of: of} }

// Measured returns the row of a measured figure: the medians over the rounds, and the median of
// the goal's number within each round. baseline is nil where there is none; then of is Value
// whatever the goal selects.
func Measured(figure, unit string, g Goal, baseline, ours rounds.Series, note string) Row {
	r := Row{Figure: figure, Unit: unit, Goal: g.Sentence, Note: note, of: g.of, reported: g.holds == nil, Ours: ptr(ours.Median())}
	r.Spread = &Spread{Ours: span(ours)}
	judged := ours
	if baseline == nil {
		r.of = Value
	} else {
		ratio := ours.With(baseline, func(a, b float64) float64 {
			if b == 0 {
				return 0 // JSON has no infinity; the row has the figures themselves
			}
			return a / b
		})
		difference := ours.With(baseline, func(a, b float64) float64 { return a - b })
		r.Baseline, r.Ratio, r.Difference = ptr(baseline.Median()), ptr(ratio.Median()), ptr(difference.Median())
		r.Spread.Baseline, r.Spread.Ratio, r.Spread.Difference = span(baseline), span(ratio), span(difference)
		switch g.of {
		case Ratio:
			judged = ratio
		case Difference:
			judged = difference
		}
	}
	r.Met = len(ours) > 0 && (g.holds == nil || (baseline != nil || g.of == Value) && g.holds(judged.Median()))
	return r
}

// Missing returns the row of a figure that could not be measured, with the reason.
func Missing(figure, unit string, g Goal, why string) Row {
	return Row{Figure: figure, Unit: unit, Goal: g.Sentence, Why: why, of: g.of}
}

func ptr(v float64) *float64 { return &v }

func span(s rounds.Series) *Span {
	low, high := s.Spread()
	return &Span{low, high}
}
