package report

import "github.com/verbena-rdma/verbena/benchmarks/internal/rounds"

// Of is which number of a row a goal is about, and which the table shows.
type Of int

// The numbers of a row.
const (
	Value      Of = iota // ours, whatever the baseline is
	Ratio                // ours divided by the baseline
	Difference           // ours less the baseline
)

// Goal is what a row is held to. The zero Goal is none: the row is reported.
type Goal struct {
	// Sentence says it.
	Sentence string
	of       Of
	// holds judges the median; nil for no goal.
	holds func(float64) bool
}

// AtMost holds a row's number to a limit from above. The sentence is the reader's.
func AtMost(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v <= limit }}
}

// Below is AtMost without the limit itself.
func Below(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v < limit }}
}

// AtLeast holds a row's number to a limit from below.
func AtLeast(limit float64, of Of, sentence string) Goal {
	return Goal{sentence, of, func(v float64) bool { return v >= limit }}
}

// Reported is no goal: what is measured is met. The row shows of beside its figures.
func Reported(of Of) Goal { return Goal{Sentence: "reported, no goal", of: of} }

// Measured is the row of a figure that was measured: the medians over the rounds, and
// the median of what the goal is about within each round. baseline is nil where there
// is none; then of is Value whatever the goal says.
func Measured(figure, unit string, g Goal, baseline, ours rounds.Series, note string) Row {
	r := Row{Figure: figure, Unit: unit, Goal: g.Sentence, Note: note, of: g.of, reported: g.holds == nil, Ours: ptr(ours.Median())}
	r.Spread = &Spread{Ours: span(ours)}
	judged := ours
	if baseline == nil {
		r.of = Value
	} else {
		ratio := ours.With(baseline, func(a, b float64) float64 {
			if b == 0 {
				return 0 // JSON has no infinity; the figures themselves are there
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

// Missing is the row of a figure that could not be measured, and why.
func Missing(figure, unit string, g Goal, why string) Row {
	return Row{Figure: figure, Unit: unit, Goal: g.Sentence, Why: why, of: g.of}
}

func ptr(v float64) *float64 { return &v }

func span(s rounds.Series) *Span {
	low, high := s.Spread()
	return &Span{low, high}
}
