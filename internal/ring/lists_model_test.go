//go:build verbena_model

package ring

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// listWorld has users of n slots. In each round a user gets as many as it can, up to want, and
// gives them back: even users one by one, odd users together.
func listWorld(n, users, rounds int) model.World {
	const want = 2
	f := NewFreeList(NewLinks(n))
	owner := make([]int, n) // the user that has slot i, plus 1; 0: free
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
		for i := uint32(f.head.Load() & none); i != none; i = f.next[i].load() {
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

// Rule: in every order of steps a slot has one owner, and all come back.
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

// tableWorld has a free list and a stack that share links, as the lists of a queue do: the index of a slot in the
// free list is one less than in the stack. Producers get up to three slots together and push them as one. The
// consumer takes the slots when it is woken, keeps them in a list of its own, and puts them back.
func tableWorld(n, producers, rounds int) model.World {
	links := NewLinks(n + 1)
	free, stack := NewFreeList(links[1:]), NewIndexStack(links)
	owner := make([]int, n+1) // 0: free, -1: the consumer, -2: on the stack; otherwise the producer
	bells, pushed, took := 0, 0, 0
	ended := 0
	world := model.World{
		Shared: func(d *model.Digest) {
			d.Add(free.head.Load())
			stack.Digest(d) // with the links of both
			d.Add(uint64(bells))
			d.Add(uint64(ended))
		},
		Ghost: func(d *model.Digest) {
			for _, o := range owner {
				d.Add(uint64(o + 2))
			}
			d.Add(uint64(pushed))
			d.Add(uint64(took))
		},
	}
	change := func(i uint32, from, to int) {
		if i == 0 || int(i) > n || owner[i] != from {
			panic(fmt.Sprintf("slot %d does not belong to %d", i, from))
		}
		owner[i] = to
	}
	for p := range producers {
		world.Act(fmt.Sprint("producer", p), func() {
			for k := range rounds {
				model.Forget(k)
				var is [3]uint32
				got := free.GetN(is[:])
				if got == 0 {
					continue
				}
				for k := range is[:got] {
					is[k]++
					change(is[k], 0, p+1)
				}
				for k := 1; k < got; k++ {
					stack.Over(is[k], is[k-1])
				}
				for _, i := range is[:got] {
					change(i, p+1, -2)
				}
				pushed += got
				model.Forget(k<<16 | got<<12 | int(is[0])<<8 | int(is[1])<<4 | int(is[2])) // what it knows when it pushes
				if stack.PushAll(is[0], is[got-1]) {
					bells++
				}
			}
			ended++
		})
	}
	world.Act("consumer", func() {
		for ended < producers || bells > 0 {
			model.Forget(took)
			model.Block("await", func() bool { return bells > 0 || ended == producers })
			if bells == 0 {
				return
			}
			bells--
			i, last, k := stack.TakeAll()
			var back []uint32
			for range k {
				change(i, -2, -1)
				back = append(back, i-1)
				i = links.Next(i)
			}
			if k == 0 {
				continue
			}
			took += k
			knows := took
			for _, i := range back {
				knows = knows<<4 | int(i)
			}
			model.Forget(knows)
			model.Yield("keep")
			links.Join(last, back[0]+1) // the links of its slots are the consumer's
			model.Yield("put back")
			for _, i := range back {
				change(i+1, -1, 0)
			}
			model.Forget(knows)
			free.PutN(back)
		}
	})
	world.End = func([]string) error {
		if took != pushed || free.Len() != n {
			return fmt.Errorf("%d slots were pushed, the consumer got %d, and %d of %d slots are home", pushed, took, free.Len(), n)
		}
		return nil
	}
	return world
}

// Rule: a free list and a stack that share links do not disturb each other: a slot has one owner, and all
// come back. A link that a GetN reads late may lead to a slot of the other list, or be no slot at all.
func TestModelSharedLinks(t *testing.T) {
	for _, c := range []struct {
		n, producers, rounds int
		large                bool
	}{{1, 2, 2, false}, {2, 2, 1, false}, {3, 2, 1, false}, {3, 2, 2, true}} {
		if c.large && !model.Large {
			continue
		}
		model.Holds(t, fmt.Sprintf("%d slots, %d producers, %d rounds", c.n, c.producers, c.rounds), func() model.World { return tableWorld(c.n, c.producers, c.rounds) })
	}
}

type letterbox = Inbox[letter, *letter]

// boxWorld has producers that push some letters each, and wake the consumer if they found the inbox
// empty, and a consumer that takes the letters when it is woken.
func boxWorld(producers, each int) model.World {
	box := new(letterbox)
	var all []*letter
	for p := range producers {
		for k := range each {
			all = append(all, &letter{from: p, seq: k})
		}
	}
	bells, next, total := 0, make([]int, producers), 0
	world := model.World{
		Shared: func(d *model.Digest) {
			box.Digest(d, all)
			d.Add(uint64(bells))
		},
		Ghost: func(d *model.Digest) {
			for _, n := range next {
				d.Add(uint64(n))
			}
		},
	}
	for p := range producers {
		world.Act(fmt.Sprint("producer", p), func() {
			for k := range each {
				model.Forget(k)
				if box.Push(all[p*each+k]) {
					bells++
				}
			}
		})
	}
	world.Act("consumer", func() {
		for total < len(all) {
			model.Forget(total)
			model.Block("await", func() bool { return bells > 0 })
			bells--
			for l := box.TakeAll(); l != nil; {
				if l.seq != next[l.from] {
					panic(fmt.Sprintf("producer %d: letter %d, want %d", l.from, l.seq, next[l.from]))
				}
				next[l.from]++
				total++
				model.Forget(1<<16 | total<<8 | l.from<<4 | l.seq)
				l = l.InboxHook().Unlink()
			}
		}
	})
	world.End = func([]string) error {
		if total != len(all) || box.head.Load() != nil {
			return fmt.Errorf("%d of %d letters came, and nobody is told", total, len(all))
		}
		return nil
	}
	return world
}

// Rule: in every order of steps each object comes once, in its producer's order, and only the
// producer that finds the inbox empty must wake the consumer.
func TestModelInbox(t *testing.T) {
	for _, n := range sizes([2]int{1, 3}, [2]int{2, 1}, [2]int{2, 2}, [2]int{3, 1}, [2]int{2, 3}) {
		model.Holds(t, fmt.Sprintf("%d producers of %d", n[0], n[1]), func() model.World { return boxWorld(n[0], n[1]) })
	}
}

// mpscWorld has a producer of one value, and a producer of several that pops each again or leaves
// them in the queue.
func mpscWorld(size, several int, popped bool) model.World {
	q := NewMPSC[int](size)
	pushed := 0
	one := 1
	push := func() {
		if q.Push(&one) == Pushed {
			pushed++
		} else if popped {
			model.Failf("full, with %d of %d in it", q.Len(), size)
		}
	}
	world := model.World{
		Shared: func(d *model.Digest) {
			q.Digest(d, func(v *int) uint64 { return uint64(*v) })
		},
		Ghost: func(d *model.Digest) { d.Add(uint64(pushed)) },
		End: func([]string) error {
			if want := min(size, several+1); !popped && pushed != want {
				return fmt.Errorf("of %d, %d were pushed, want %d", size, pushed, want)
			}
			return nil
		},
	}
	world.Act("one", func() {
		model.Yield("begin")
		push()
	})
	world.Act("several", func() {
		for k := range several {
			model.Forget(k)
			model.Yield("begin")
			if push(); popped {
				q.Pop(new(int))
			}
		}
	})
	return world
}

// Rule: Push does not return Full to a producer that is overtaken between reading the tail and its
// place: it tries again. Others push and pop there once, or so often that the place has come round.
func TestModelMPSC(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		for _, several := range []int{1, 2, 3, 4, 5} {
			for _, popped := range []bool{true, false} {
				model.Holds(t, fmt.Sprintf("of %d, overtaken by %d, popped %v", size, several, popped), func() model.World { return mpscWorld(size, several, popped) })
			}
		}
	}
}
