package reactor_test

import (
	"math"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
)

// Rule: every value is counted in the one bucket whose bounds it lies between, and the
// bounds of the buckets leave no value out.
func TestAHistogramHasABucketForEveryValue(t *testing.T) {
	var h reactor.Histogram
	next := uint64(0)
	for i := range h {
		from, to := h.Bounds(i)
		if from != next || to < from {
			t.Errorf("bucket %d is from %d to %d, want from %d on", i, from, to, next)
		}
		for _, v := range []uint64{from, from + (to-from)/2, to} {
			h = reactor.Histogram{}
			if h.Note(int(min(v, math.MaxInt))); h[i] != 1 || h.Count() != 1 {
				t.Errorf("%d was counted in %v, want bucket %d", v, h, i)
			}
		}
		next = to + 1
	}
	if next != 0 {
		t.Errorf("the last bucket ends before %d, want none after it", next)
	}
}

// Rule: histograms add up bucket by bucket, and print what was counted.
func TestHistogramsAddUp(t *testing.T) {
	var a, b reactor.Histogram
	for v := range 6 {
		a.Note(v)
	}
	b.Note(5)
	b.Note(math.MaxInt)
	sum := a.Add(b)
	if sum.Count() != 8 || a.Count() != 6 {
		t.Errorf("%v and %v are %v", a, b, sum)
	}
	if got, want := sum.String(), "0: 1, 1: 1, 2-3: 2, 4-7: 3, from 4194304: 1"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}
