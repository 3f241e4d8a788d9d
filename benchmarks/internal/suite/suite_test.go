package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/smoke"
	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// fake is a side that returns its arguments, and fails if it has an error.
type fake struct {
	err    error
	closed *int
}

func (f fake) Round(_ context.Context, told rounds.Values) (rounds.Values, error) { return told, f.err }
func (f fake) Close() error                                                       { *f.closed++; return nil }

// smallest is a suite of fakes. ran counts the rounds of the first trial, closed the closed
// sides, given the calls of Close.
type smallest struct{ size, ran, closed, given int }

func (s *smallest) main(args []string, stdout, stderr io.Writer) int {
	start := func(err error) func(context.Context) (Runner, error) {
		return func(context.Context) (Runner, error) { return fake{err, &s.closed}, nil }
	}
	row := func(figure string, tell func(rounds.Rounds) (note, why string)) Row {
		return NewRow(figure, "", report.Reported(report.Ratio), Scaled("a", Ops, 1), Scaled("b", Ops, 2), tell)
	}
	c := Command{
		Name: "smallest", Usage: "usage: smallest\n", Ops: 10, RoundTime: time.Minute,
		Flags: func(f *flag.FlagSet) { f.IntVar(&s.size, "size", 1, "its size") },
		Check: func() error {
			if s.size < 1 {
				return fmt.Errorf("a size of %d", s.size)
			}
			return nil
		},
		Trials: func(ops int) []Trial {
			sides := []Contender{{"a", start(nil), OpsArgs(ops)}, {"b", start(nil), func(so rounds.Round) rounds.Values { s.ran++; return so["a"] }}}
			return []Trial{
				{Sides: sides, Most: 3, Rows: []Row{
					row("plain", nil),
					row("noted", func(all rounds.Rounds) (note, why string) { return "as it was", "" }),
					row("unknown", func(all rounds.Rounds) (note, why string) { return "", "nobody tells" }),
				}},
				{Sides: []Contender{{"a", start(nil), OpsArgs(ops)}, {"b", start(nil), OpsArgs(2 * ops)}}, Together: true, Rows: []Row{row("together", nil)}},
				{Sides: []Contender{{"a", start(errors.New("it broke")), OpsArgs(ops)}}, Rows: []Row{row("broken", nil)}},
			}
		},
		Close: func() error { s.given++; return nil },
	}
	return c.Main(args, stdout, stderr)
}

// Rule: a row is the median of its rounds, or has the reason why there is none; sides run as
// often as requested, up to the trial's limit; all started sides are closed.
func TestRowsOfTrials(t *testing.T) {
	for asked, ran := range map[string]int{"2": 2, "9": 3} {
		s := &smallest{}
		rows := smoke.Run(t, s.main, "-rounds", asked, "-ops", "8")
		if s.ran != ran || s.closed != 5 || s.given != 1 {
			t.Errorf("%s rounds: %+v", asked, *s)
		}
		var got []string
		for _, r := range rows {
			text := r.Figure + " " + r.Note + r.Why
			if r.Ours != nil {
				text += " " + report.Number(*r.Baseline) + " " + report.Number(*r.Ours)
			}
			got = append(got, text)
		}
		want := []string{"plain  8 4", "noted as it was 8 4", "unknown nobody tells", "together  8 8", "broken round 1, a: it broke"}
		if !slices.Equal(got, want) {
			t.Errorf("the rows are %q", got)
		}
	}
}

// Rule: wrong arguments are refused with a message, help is help, -list prints the figures that
// -only selects, and an unknown figure is an error.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args      []string
		code      int
		out, says string // all of the one, a part of the other
	}{
		{[]string{"-only", "("}, 2, "", "smallest: error parsing regexp"},
		{[]string{"-rounds", "0"}, 2, "", "smallest: 0 rounds of 10 operations (-h for help)"},
		{[]string{"-ops", "0"}, 2, "", "9 rounds of 0 operations"},
		{[]string{"-size", "0"}, 2, "", "smallest: a size of 0 (-h for help)"},
		{[]string{"-nonsense"}, 2, "", "-nonsense"},
		{[]string{"what"}, 2, "", `smallest: "what" is no flag (-h for help)`},
		{[]string{"-h"}, 0, "", "usage: smallest\n  -json file\n"},
		{[]string{"-list", "-only", "n.*n|together"}, 0, "unknown\ntogether\n", ""},
		{[]string{"-list", "-only", "no such figure"}, 1, "", `smallest: no figure matches "no such figure" (-list prints them)`},
		{[]string{"-only", "no such figure"}, 1, "", "no figure matches"},
	} {
		var out, trouble strings.Builder
		if code := (&smallest{}).main(c.args, &out, &trouble); code != c.code || out.String() != c.out || !strings.Contains(trouble.String(), c.says) {
			t.Errorf("%q ended with %d, printed %q, said %q", c.args, code, out.String(), trouble.String())
		}
	}
}

// Rule: percentiles are of all samples, and all percentiles of a single sample are that sample.
func TestPercentiles(t *testing.T) {
	var s Samples
	for d := time.Duration(1000); d > 0; d-- {
		s = append(s, d)
	}
	found := rounds.Values{}
	s.Report(found)
	if found[P50] != 501 || found[P99] != 991 || found[P999] != 1000 || found[Max] != 1000 {
		t.Errorf("of 1 to 1000: %v", found)
	}
	one := rounds.Values{}
	Samples{7}.Report(one)
	if one[P50] != 7 || one[P999] != 7 || one[Max] != 7 {
		t.Errorf("of 7 alone: %v", one)
	}
}
