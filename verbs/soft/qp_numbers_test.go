package soft

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// drawn returns a source of the given numbers, in the 24 bits that a draw takes.
func drawn(numbers ...uint32) *bytes.Reader {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n<<8)
	}
	return bytes.NewReader(b)
}

// Rule: the number of a queue pair is what the random source gives, but never 0, 1 or 0xffffff, nor one in use, nor one
// of a queue pair that ended within 10 s.
func TestQueuePairNumbersAreDrawn(t *testing.T) {
	w := newWorld(t, options{apart: true})
	d := w.a.ctx.dev
	old := w.a.qp.Num()
	d.random = drawn(0, 1, 0xffffff, old, 2, 2, 0xfffffe)
	first, second := w.a.newQP(w.a.qp.granted), w.a.newQP(w.a.qp.granted)
	if first.Num() != 2 || second.Num() != 0xfffffe {
		t.Fatalf("the numbers are %#x and %#x, want 0x2 and 0xfffffe", first.Num(), second.Num())
	}
	must.Do(t, first.Close())
	if d.find(2) != nil || d.find(0xfffffe) != second || d.find(0) != nil || d.find(1) != nil {
		t.Fatal("the look-up finds an ended queue pair, or not the other")
	}
	for _, c := range []struct {
		after time.Duration
		want  uint32
	}{{0, 3}, {numberRest - 1, 4}, {2 * numberRest, 2}} {
		w.fab.AdvanceTo(max(w.fab.Now(), c.after))
		d.random = drawn(2, c.want, c.want)
		q := w.a.newQP(w.a.qp.granted)
		if q.Num() != c.want {
			t.Errorf("%v after the end of queue pair 2 the number is %#x, want %#x", c.after, q.Num(), c.want)
		}
		must.Do(t, q.Close())
	}
	must.Do(t, second.Close())
}

// Rule: a seed repeats all numbers, and they are no sequence: all 24 bits change.
func TestQueuePairNumbersOfASeed(t *testing.T) {
	numbers := func(seed uint64) (all []uint32) {
		w := newWorld(t, options{seed: seed})
		for range 40 {
			q := w.a.newQP(w.a.qp.granted)
			all = append(all, q.Num())
			must.Do(t, q.Close())
		}
		return all
	}
	a := numbers(1)
	if !slices.Equal(a, numbers(1)) || slices.Equal(a, numbers(2)) {
		t.Error("the numbers do not depend on the seed alone")
	}
	ones, zeros := uint32(0), uint32(0)
	for _, n := range a {
		ones, zeros = ones|n, zeros|^n
	}
	if ones&zeros&max24 != max24 {
		t.Errorf("bits %#06x of the numbers never change", ^(ones&zeros)&max24)
	}
}

// Rule: numbers that rest take no memory for longer than two periods after the next queue pair is made.
func TestNumbersRestForAWhile(t *testing.T) {
	var n qpNumbers
	for i := range uint32(1000) {
		n.rest(i, time.Duration(i)*numberRest/100)
		if n.free(i) || i >= 100 && n.free(i-100) {
			t.Fatalf("number %d is free within %v", i, numberRest)
		}
		if rest := len(n.ended) + len(n.older); rest > 200 {
			t.Fatalf("%d numbers rest, of 100 in each period", rest)
		}
	}
}
