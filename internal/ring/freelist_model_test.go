//go:build verbena_model

package ring

import (
	"fmt"
	"os"
	"testing"
)

// listWays are the steps of a FreeList; the model is shown wrong ones too.
type listWays struct {
	get  func(*FreeList) (uint32, bool)
	getN func(*FreeList, []uint32) int
	put  func(*FreeList, uint32)
	putN func(*FreeList, []uint32)
}

var rightList = listWays{(*FreeList).Get, (*FreeList).GetN, (*FreeList).Put, (*FreeList).PutN}

// listWorld has users of n slots: each gets as many as it can, up to want, and gives them
// back, one by one, or together every other user, some rounds long.
func listWorld(w listWays, n, users, rounds int) World {
	const want = 2
	f := NewFreeList(n)
	owner := make([]int, n) // who has it, 0 nobody
	held := make([][]uint32, users)
	var world World
	world.Shared = func(d *Digest) {
		d.Add(f.head.Load())
		for i := range f.next {
			d.Add(uint64(f.next[i].load()))
		}
	}
	world.Ghost = func(d *Digest) {
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
		world.Actors = append(world.Actors, func() {
			ops := 0
			begin := func() { ops++; Forget(ops) }
			for range rounds {
				for len(held[u]) < want {
					begin()
					if u%2 == 1 {
						var is [want]uint32
						for _, i := range is[:w.getN(f, is[:])] {
							own(i)
						}
						break
					}
					i, ok := w.get(f)
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
					w.putN(f, have)
				} else {
					for _, i := range have {
						begin()
						w.put(f, i)
					}
				}
				held[u] = nil
			}
		})
	}
	world.End = func() error {
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
func TestFreeListEveryInterleaving(t *testing.T) {
	for _, c := range []struct {
		n, users, rounds int
		large            bool
	}{{1, 2, 2, false}, {2, 2, 2, false}, {3, 2, 2, false}, {1, 3, 1, false}, {2, 3, 1, false}, {3, 3, 1, true}} {
		if c.large && os.Getenv("VERBENA_MODEL") != "all" {
			continue
		}
		states, err := Explore(modelLimit, func() World { return listWorld(rightList, c.n, c.users, c.rounds) })
		t.Logf("%d slots, %d users, %d rounds: %d states", c.n, c.users, c.rounds, states)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The model finds what each step defends against; the tag first of all.
func TestFreeListModelFindsMistakes(t *testing.T) {
	untagged := func(f *FreeList, h uint64, to uint32) bool { return f.head.CompareAndSwap(h, uint64(to)) }
	for name, w := range map[string]listWays{
		"no tag": {
			get: func(f *FreeList) (uint32, bool) {
				for {
					fresh()
					h := f.head.Load()
					if uint32(h) == none {
						return 0, false
					}
					yield()
					below := f.next[uint32(h)].load()
					yield()
					if untagged(f, h, below) {
						return uint32(h), true
					}
				}
			},
			put: func(f *FreeList, i uint32) {
				for {
					fresh()
					h := f.head.Load()
					f.next[i].store(uint32(h))
					yield()
					if untagged(f, h, i) {
						return
					}
				}
			},
			putN: func(f *FreeList, is []uint32) {
				for k := 1; k < len(is); k++ {
					f.next[is[k-1]].store(is[k])
				}
				for len(is) > 0 {
					fresh()
					h := f.head.Load()
					f.next[is[len(is)-1]].store(uint32(h))
					yield()
					if untagged(f, h, is[0]) {
						return
					}
				}
			},
		},
		"the head is stored, not swapped if still the same": {put: func(f *FreeList, i uint32) {
			yield()
			h := f.head.Load()
			f.next[i].store(uint32(h))
			yield()
			f.head.Store(h&^none + tagOne | uint64(i))
		}},
		"the link is written after the slot is published": {put: func(f *FreeList, i uint32) {
			for {
				fresh()
				h := f.head.Load()
				yield()
				if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {
					yield()
					f.next[i].store(uint32(h))
					return
				}
			}
		}},
		"the link below the last of many is not written again": {putN: func(f *FreeList, is []uint32) {
			for k := 1; k < len(is); k++ {
				f.next[is[k-1]].store(is[k])
			}
			if len(is) == 0 {
				return
			}
			yield()
			h := f.head.Load()
			f.next[is[len(is)-1]].store(uint32(h))
			for {
				yield()
				now := f.head.Load()
				yield()
				if f.head.CompareAndSwap(now, (now&^none+tagOne)|uint64(is[0])) {
					return
				}
			}
		}},
		"the tag is not moved on by who gets and puts back": {get: func(f *FreeList) (uint32, bool) {
			for {
				fresh()
				h := f.head.Load()
				if uint32(h) == none {
					return 0, false
				}
				yield()
				below := f.next[uint32(h)].load()
				yield()
				if f.head.CompareAndSwap(h, h&^none|uint64(below)) {
					return uint32(h), true
				}
			}
		}, put: func(f *FreeList, i uint32) {
			for {
				fresh()
				h := f.head.Load()
				f.next[i].store(uint32(h))
				yield()
				if f.head.CompareAndSwap(h, h&^none|uint64(i)) {
					return
				}
			}
		}},
		"who takes several does not see that the list has changed": {getN: func(f *FreeList, is []uint32) int {
			for {
				fresh()
				h := f.head.Load()
				i, n := uint32(h), 0
				for n < len(is) && i != none {
					is[n] = i
					n++
					yield()
					i = f.next[i].load()
				}
				if n == 0 {
					return 0
				}
				yield()
				now := f.head.Load()
				if uint32(now) == uint32(h) && f.head.CompareAndSwap(now, (now&^none+tagOne)|uint64(i)) {
					return n
				}
			}
		}},
	} {
		if w.get == nil {
			w.get = rightList.get
		}
		if w.getN == nil {
			w.getN = rightList.getN
		}
		if w.put == nil {
			w.put = rightList.put
		}
		if w.putN == nil {
			w.putN = rightList.putN
		}
		states, err := Explore(modelLimit, func() World { return listWorld(w, 3, 2, 2) })
		if err == nil {
			t.Errorf("%s: not found in %d states", name, states)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
