package rounds

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var number = rapid.Float64Range(-1e15, 1e15)

// Rule: as many values are at or below the median as at or above it, it lies within
// the spread, and neither depends on the order of the rounds.
func TestMedianIsInTheMiddle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Series(rapid.SliceOfN(number, 1, 40).Draw(t, "series"))
		was := slices.Clone(s)
		m := s.Median()
		low, high := s.Spread()
		if m < low || m > high {
			t.Fatalf("the median %g is outside of %g to %g", m, low, high)
		}
		below, above := 0, 0
		for _, v := range s {
			if v < low || v > high {
				t.Fatalf("%g is outside of the spread %g to %g", v, low, high)
			}
			if v <= m {
				below++
			}
			if v >= m {
				above++
			}
		}
		if 2*below < len(s) || 2*above < len(s) {
			t.Fatalf("%d at or below the median %g, %d at or above, of %d", below, m, above, len(s))
		}
		if !slices.Contains(s, low) || !slices.Contains(s, high) || len(s)%2 == 1 && !slices.Contains(s, m) {
			t.Fatalf("%g, %g, %g of %v were never measured", low, m, high, s)
		}
		if !slices.Equal(s, was) {
			t.Fatal("the rounds were put in another order")
		}
		shuffled := Series(rapid.Permutation([]float64(s)).Draw(t, "shuffled"))
		l2, h2 := shuffled.Spread()
		if shuffled.Median() != m || l2 != low || h2 != high {
			t.Fatal("another order, other figures")
		}
	})
}

// Rule: of an even number of rounds the median is half-way between the two in the middle.
func TestMedianOfTwo(t *testing.T) {
	if m := (Series{4, 1, 2, 100}).Median(); m != 3 {
		t.Errorf("the median of 1, 2, 4 and 100 is %g", m)
	}
}

// Rule: an empty series gives 0, and does not panic.
func TestNothingMeasured(t *testing.T) {
	var s Series
	low, high := s.Spread()
	if s.Median() != 0 || low != 0 || high != 0 {
		t.Errorf("%g, %g, %g of nothing", s.Median(), low, high)
	}
}

// Rule: values survive the conversion to text and back.
func TestValuesThroughText(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z0-9_]{0,9}`)
	rapid.Check(t, func(t *rapid.T) {
		v := Values(rapid.MapOf(name, number).Draw(t, "values"))
		got, err := Parse(v.String())
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != v.String() || len(got) != len(v) {
			t.Fatalf("%q came back as %q", v, got)
		}
		for k := range v {
			if got[k] != v[k] {
				t.Fatalf("%s: %g came back as %g", k, v[k], got[k])
			}
		}
	})
	for _, bad := range []string{"a", "a=", "=1", "a=x", "a=1 a=2", "a=NaN", "a=+Inf", "a=1e999"} {
		if v, err := Parse(bad); err == nil {
			t.Errorf("%q was read as %v", bad, v)
		}
	}
}

// Rule: sides alternate in the given order, each gets the results of those before it in its round
// and no older ones, and a failure keeps the complete rounds.
func TestSidesAlternate(t *testing.T) {
	var order []string
	boom := errors.New("boom")
	n := 0
	ours := Side{"ours", func(_ context.Context, so Round) (Values, error) {
		if len(so) != 0 {
			t.Errorf("the first of a round sees %v", so)
		}
		order = append(order, "ours")
		n++
		return Values{"n": float64(n)}, nil
	}}
	other := Side{"other", func(_ context.Context, so Round) (Values, error) {
		order = append(order, "other")
		if so["ours"]["n"] != float64(n) {
			t.Errorf("round %d sees %v", n, so)
		}
		if n == 4 {
			return nil, boom
		}
		return Values{"n": 10 * so["ours"]["n"]}, nil
	}}
	all, err := Alternate(t.Context(), 3, ours, other)
	if err != nil || strings.Join(order, " ") != "ours other ours other ours other" {
		t.Fatalf("%v, in the order %v", err, order)
	}
	per := all.Series(func(r Round) float64 { return r["other"]["n"] }).
		With(all.Series(func(r Round) float64 { return r["ours"]["n"] }), func(a, b float64) float64 { return a / b })
	if len(per) != 3 || per.Median() != 10 || math.IsNaN(per[0]) {
		t.Errorf("ratios %v, want 10 each", per)
	}
	all, err = Alternate(t.Context(), 3, ours, other)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "round 1, other") || len(all) != 0 {
		t.Errorf("%v with %d rounds, want boom in the first round of the second try", err, len(all))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := Alternate(ctx, 3, ours); !errors.Is(err, context.Canceled) || len(all) != 0 {
		t.Errorf("%d rounds and %v after the end of the context", len(all), err)
	}
}
