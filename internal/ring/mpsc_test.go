package ring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Rule: the queue holds as many elements as it was made for, first in, first out, again and again;
// closed it accepts none and returns those it has.
func TestMPSCHoldsItsNumber(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 8, 100} {
		q := NewMPSC[int](n)
		for round := range 5 {
			for i := range n {
				if got := q.Push(&i); got != Pushed {
					t.Fatalf("of %d: push %d in round %d: %v", n, i, round, got)
				}
			}
			if got := q.Push(&n); got != Full {
				t.Fatalf("of %d: one more: %v, want Full", n, got)
			}
			if round == 4 {
				q.Close()
				if got := q.Push(&n); got != Closed {
					t.Fatalf("of %d, closed: %v, want Closed", n, got)
				}
			}
			if q.Len() != n || q.Cap() != n {
				t.Fatalf("of %d, full: Len %d, Cap %d", n, q.Len(), q.Cap())
			}
			for i := range n {
				var v int
				if ok := q.Pop(&v); !ok || v != i {
					t.Fatalf("of %d: pop %d in round %d: %d, %v", n, i, round, v, ok)
				}
			}
			if v := -1; q.Pop(&v) || v != -1 || q.Len() != 0 {
				t.Fatalf("of %d, empty: popped %d, Len %d", n, v, q.Len())
			}
		}
	}
}

// Rule: the queue does not keep popped elements alive.
func TestMPSCClearsPlaces(t *testing.T) {
	q := NewMPSC[*int](2)
	v := new(int)
	q.Push(&v)
	q.Pop(&v)
	if q.places[0].v != nil {
		t.Error("a popped element is still in its place")
	}
}

// Rule: with many producers and a close in between, each producer's elements come out in its order:
// all accepted ones, and no others.
func TestMPSCManyProducers(t *testing.T) {
	const producers, each = 4, 20_000
	q := NewMPSC[[2]int](64)
	accepted := make([]int, producers)
	var done sync.WaitGroup
	for p := range producers {
		done.Go(func() {
			for i := 0; i < each; {
				switch q.Push(&[2]int{p, i}) {
				case Pushed:
					i++
					accepted[p] = i
				case Full:
					runtime.Gosched()
				case Closed:
					return
				}
			}
		})
	}
	next := make([]int, producers)
	total := 0
	take := func() bool {
		var v [2]int
		ok := q.Pop(&v)
		if ok {
			if v[1] != next[v[0]] {
				t.Fatalf("producer %d: element %d, want %d", v[0], v[1], next[v[0]])
			}
			next[v[0]]++
			total++
		}
		return ok
	}
	for total < producers*each*3/4 {
		if !take() {
			runtime.Gosched()
		}
	}
	q.Close()
	done.Wait()
	for take() {
	}
	for p := range producers {
		if next[p] != accepted[p] {
			t.Errorf("producer %d: %d accepted, %d came", p, accepted[p], next[p])
		}
	}
	if q.Len() != 0 {
		t.Errorf("%d are left", q.Len())
	}
}

// Rule: a queue with a free place is never full, also for a producer that another has overtaken: as
// long as they all have no more elements in it than it has places, every push succeeds.
func TestMPSCNotFullWhenOvertaken(t *testing.T) {
	const producers, burst, rounds = 4, 512, 200
	q := NewMPSC[int](producers * burst)
	var popped [producers]atomic.Int64
	var done sync.WaitGroup
	for p := range producers {
		done.Go(func() {
			for round := range int64(rounds) {
				for range burst {
					if got := q.Push(&p); got != Pushed {
						t.Errorf("producer %d, round %d: %v, and there is a place for it", p, round, got)
						q.Close()
						return
					}
				}
				for popped[p].Load() < (round+1)*burst && q.tail.Load()&closedBit == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	for p := 0; ; {
		if q.Pop(&p) {
			popped[p].Add(1)
			continue
		}
		select {
		case <-ended:
			return
		default:
			runtime.Gosched()
		}
	}
}
