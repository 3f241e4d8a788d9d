//go:build verbena_model

package ring

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// stackWays are the steps of an IndexStack; the model is shown wrong ones too.
type stackWays struct {
	push func(*IndexStack, uint32) bool
	// all pushes what a producer has as one; nil: one by one.
	all  func(s *IndexStack, first, last uint32) bool
	take func(*IndexStack) (uint32, uint32, int)
}

var rightStack = stackWays{push: (*IndexStack).Push, take: (*IndexStack).TakeAll}

// stackWorld has producers who push some indices each, and ring when they found it empty,
// and a consumer who looks when it was rung for, and gives index 0 back to its pusher,
// who pushes it once more: that is what ABA needs.
func stackWorld(w stackWays, producers, each int) World {
	s := NewIndexStack(producers * each)
	bells, again, owned := 0, 0, make([]bool, producers*each) // owned: the consumer has it
	var got []uint32
	world := World{
		Shared: func(d *Digest) {
			s.Digest(d)
			d.Add(uint64(bells))
			d.Add(uint64(again))
		},
		Ghost: func(d *Digest) {
			for _, i := range got {
				d.Add(uint64(i))
			}
		},
	}
	push := func(i uint32) {
		owned[i] = false
		if w.push(s, i) {
			bells++
		}
	}
	pushAll := func(first, last uint32) {
		for i := first; i < last; i++ {
			s.Over(i+1, i)
		}
		if w.all(s, first, last) {
			bells++
		}
	}
	for p := range producers {
		world.Actors = append(world.Actors, func() {
			if w.all != nil {
				Forget(0)
				pushAll(uint32(p*each), uint32((p+1)*each-1))
			} else {
				for k := range each {
					Forget(k)
					push(uint32(p*each + k))
				}
			}
			Forget(each)
			if p == 0 {
				Await(func() bool { return again == 1 })
				again = 2
				push(0)
			}
		})
	}
	world.Actors = append(world.Actors, func() {
		for len(got) < producers*each+1 {
			Forget(len(got))
			Await(func() bool { return bells > 0 })
			bells--
			i, _, n := w.take(s)
			for range n {
				next := s.Next(i)
				if owned[i] {
					panic(fmt.Sprintf("index %d was given twice", i))
				}
				owned[i] = true
				got = append(got, i)
				if i == 0 && again == 0 {
					again = 1
				}
				i = next
			}
		}
	})
	world.End = func() error {
		if len(got) != producers*each+1 {
			return fmt.Errorf("got %v of %d indices, and nobody is told", got, producers*each+1)
		}
		for p := range producers {
			var mine, want []uint32
			for _, i := range got {
				if int(i)/each == p {
					mine = append(mine, i)
				}
			}
			for k := range each {
				want = append(want, uint32(p*each+k))
			}
			if at := slices.Index(got, want[0]); w.all != nil && !slices.Equal(got[at:min(at+each, len(got))], want) {
				return fmt.Errorf("producer %d pushed %v as one, all is %v", p, want, got)
			}
			if p == 0 {
				want = append(want, 0)
			}
			if !slices.Equal(mine, want) {
				return fmt.Errorf("producer %d pushed %v, the consumer got %v", p, want, mine)
			}
		}
		return nil
	}
	return world
}

// sizes are how many producers with how many indices each are searched; the last ones only if
// VERBENA_MODEL=all.
func sizes(all ...[2]int) [][2]int {
	if os.Getenv("VERBENA_MODEL") != "all" {
		return all[:len(all)-1]
	}
	return all
}

const modelLimit = 20_000_000

// Rule: whatever the order of steps, each index comes once, in its producer's order, and
// who finds the stack empty is the one who must tell the consumer.
func TestIndexStackEveryInterleaving(t *testing.T) {
	asOne := rightStack
	asOne.all = (*IndexStack).PushAll
	for _, n := range sizes([2]int{1, 3}, [2]int{2, 1}, [2]int{2, 2}, [2]int{3, 1}, [2]int{2, 3}) {
		for name, w := range map[string]stackWays{"one by one": rightStack, "as one": asOne} {
			states, err := Explore(modelLimit, func() World { return stackWorld(w, n[0], n[1]) })
			t.Logf("%d producers of %d, %s: %d states", n[0], n[1], name, states)
			if err != nil {
				t.Errorf("%d producers of %d, %s: %v", n[0], n[1], name, err)
			}
		}
	}
}

// The model finds what each step defends against.
func TestIndexStackModelFindsMistakes(t *testing.T) {
	for name, w := range map[string]stackWays{
		"the head is stored, not swapped if still the same": {push: func(s *IndexStack, i uint32) bool {
			yield()
			h := s.head.Load()
			s.next[i] = h
			yield()
			s.head.Store(i)
			return h == none
		}},
		"the link is written after the index is published": {push: func(s *IndexStack, i uint32) bool {
			yield()
			h := s.head.Swap(i)
			yield()
			s.next[i] = h
			return h == none
		}},
		"the head is loaded, then emptied": {take: func(s *IndexStack) (uint32, uint32, int) {
			yield()
			h := s.head.Load()
			yield()
			s.head.Store(none)
			return reversed(s, h)
		}},
		"the consumer takes one, and nobody tells it of the rest": {take: func(s *IndexStack) (uint32, uint32, int) {
			for {
				yield()
				h := s.head.Load()
				if h == none {
					return none, none, 0
				}
				yield()
				below := s.next[h]
				yield()
				if s.head.CompareAndSwap(h, below) {
					return h, h, 1
				}
			}
		}},
		"the order is not turned round": {take: func(s *IndexStack) (uint32, uint32, int) {
			i := s.head.Swap(none)
			last, n := i, 0
			for j := i; j != none; j = s.next[j] {
				last = j
				n++
			}
			return i, last, n
		}},
		"a list is put there by its oldest": {all: func(s *IndexStack, first, last uint32) bool {
			for {
				yield()
				h := s.head.Load()
				s.next[first] = h
				yield()
				if s.head.CompareAndSwap(h, first) {
					return h == none
				}
			}
		}},
		"a list forgets what it stands on": {all: func(s *IndexStack, first, last uint32) bool {
			yield()
			h := s.head.Load()
			s.next[first] = none
			yield()
			s.head.Swap(last)
			return h == none
		}},
		"wasEmpty is what it was at first": {push: func(s *IndexStack, i uint32) bool {
			yield()
			first := s.head.Load()
			for {
				yield()
				h := s.head.Load()
				s.next[i] = h
				yield()
				if s.head.CompareAndSwap(h, i) {
					return first == none
				}
			}
		}},
	} {
		if w.push == nil {
			w.push = rightStack.push
		}
		if w.take == nil {
			w.take = rightStack.take
		}
		states, err := Explore(modelLimit, func() World { return stackWorld(w, 2, 2) })
		if err == nil {
			t.Errorf("%s: not found in %d states", name, states)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// reversed is TakeAll behind its swap.
func reversed(s *IndexStack, i uint32) (uint32, uint32, int) {
	first, last, n := uint32(none), i, 0
	for i != none {
		below := s.next[i]
		s.next[i] = first
		first, i = i, below
		n++
	}
	return first, last, n
}
