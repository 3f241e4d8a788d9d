//go:build verbena_model

package ring

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// listWorld has users of n slots: each gets as many as it can, up to want, and gives them
// back, one by one, or together every other user, some rounds long.
func listWorld(n, users, rounds int) model.World {
	const want = 2
	f := NewFreeList(n)
	owner := make([]int, n) // who has it, 0 nobody
	held := make([][]uint32, users)
	var world model.World
	world.Shared = func(d *model.Digest) {
		d.Add(f.head.Load())
		for i := range f.next {
			d.Add(uint64(f.next[i].load()))
		}
	}
	world.Ghost = func(d *model.Digest) {
		for u := range users {
			d.Add(^uint64(0))
			for _, i := range held[u] {
				d.Add(uint64(i))
			}
		}
		for _, u := range owner {
			d.Add(uint64(u))
		}
	}
	for u := range users {
		own := func(i uint32) {
			if int(i) >= n || owner[i] != 0 {
				panic(fmt.Sprintf("slot %d was given to %d and %d", i, owner[i], u+1))
			}
			owner[i] = u + 1
			held[u] = append(held[u], i)
		}
		world.Act(fmt.Sprint("user", u), func() {
			ops := 0
			begin := func() { ops++; model.Forget(ops) }
			for range rounds {
				for len(held[u]) < want {
					begin()
					if u%2 == 1 {
						var is [want]uint32
						for _, i := range is[:f.GetN(is[:])] {
							own(i)
						}
						break
					}
					i, ok := f.Get()
					if !ok {
						break
					}
					own(i)
				}
				have := held[u]
				for _, i := range have {
					owner[i] = 0
				}
				if u%2 == 1 {
					begin()
					f.PutN(have)
				} else {
					for _, i := range have {
						begin()
						f.Put(i)
					}
				}
				held[u] = nil
			}
		})
	}
	world.End = func([]string) error {
		free := map[uint32]bool{}
		for i := uint32(f.head.Load()); i != none; i = f.next[i].load() {
			if free[i] {
				return fmt.Errorf("slot %d is free twice", i)
			}
			free[i] = true
		}
		if len(free) != n {
			return fmt.Errorf("%d of %d slots are home", len(free), n)
		}
		return nil
	}
	return world
}

// Rule: whatever the order of steps, a slot has one owner, and all come home.
func TestModelFreeList(t *testing.T) {
	for _, c := range []struct {
		n, users, rounds int
		large            bool
	}{{1, 2, 2, false}, {2, 2, 2, false}, {3, 2, 2, false}, {1, 3, 1, false}, {2, 3, 1, false}, {3, 3, 1, true}} {
		if c.large && !model.Large {
			continue
		}
		model.Holds(t, fmt.Sprintf("%d slots, %d users, %d rounds", c.n, c.users, c.rounds), func() model.World { return listWorld(c.n, c.users, c.rounds) })
	}
}
