//go:build verbena_model

package ring

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// stackWorld has producers that push some indices each, and wake the consumer if they found the
// stack empty. The consumer takes the indices when it is woken, and gives index 0 back to its
// pusher, which pushes it once more: ABA needs that. Producers push their indices one by one, or
// with one PushAll.
func stackWorld(producers, each int, asOne bool) model.World {
	s := NewIndexStack(NewLinks(producers * each))
	bells, again, owned := 0, 0, make([]bool, producers*each) // owned: the consumer has it
	var got []uint32
	world := model.World{
		Shared: func(d *model.Digest) {
			s.Digest(d)
			d.Add(uint64(bells))
			d.Add(uint64(again))
		},
		Ghost: func(d *model.Digest) {
			for _, i := range got {
				d.Add(uint64(i))
			}
		},
	}
	push := func(i uint32) {
		owned[i] = false
		if s.Push(i) {
			bells++
		}
	}
	pushAll := func(first, last uint32) {
		for i := first; i < last; i++ {
			s.Over(i+1, i)
		}
		if s.PushAll(first, last) {
			bells++
		}
	}
	for p := range producers {
		world.Act(fmt.Sprint("producer", p), func() {
			if asOne {
				model.Forget(0)
				pushAll(uint32(p*each), uint32((p+1)*each-1))
			} else {
				for k := range each {
					model.Forget(k)
					push(uint32(p*each + k))
				}
			}
			model.Forget(each)
			if p == 0 {
				model.Block("await", func() bool { return again == 1 })
				again = 2
				push(0)
			}
		})
	}
	world.Act("consumer", func() {
		for len(got) < producers*each+1 {
			model.Forget(len(got))
			model.Block("await", func() bool { return bells > 0 })
			bells--
			i, _, n := s.TakeAll()
			for range n {
				next := s.next.Next(i)
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
	world.End = func([]string) error {
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
			if at := slices.Index(got, want[0]); asOne && !slices.Equal(got[at:min(at+each, len(got))], want) {
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

// sizes returns the pairs of producers and indices each to be searched; the last one only if
// VERBENA_MODEL=all.
func sizes(all ...[2]int) [][2]int {
	if !model.Large {
		return all[:len(all)-1]
	}
	return all
}

// Rule: in every order of steps each index comes once, in its producer's order, and only the
// producer that finds the stack empty must wake the consumer.
func TestModelIndexStack(t *testing.T) {
	for _, n := range sizes([2]int{1, 3}, [2]int{2, 1}, [2]int{2, 2}, [2]int{3, 1}, [2]int{2, 3}) {
		for _, asOne := range []bool{false, true} {
			model.Holds(t, fmt.Sprintf("%d producers of %d, as one %t", n[0], n[1], asOne), func() model.World { return stackWorld(n[0], n[1], asOne) })
		}
	}
}
