//go:build verbena_model

package ring

import (
	"fmt"
	"testing"
)

type letterbox = Inbox[letter, *letter]

// boxWays are the steps of an Inbox; the model is shown wrong ones too.
type boxWays struct {
	push func(*letterbox, *letter) bool
	take func(*letterbox) *letter
}

var rightBox = boxWays{(*letterbox).Push, (*letterbox).TakeAll}

// boxWorld has producers who push some letters each, and ring when they found it empty,
// and a consumer who looks when it was rung for.
func boxWorld(w boxWays, producers, each int) World {
	box := new(letterbox)
	var all []*letter
	for p := range producers {
		for k := range each {
			all = append(all, &letter{from: p, seq: k})
		}
	}
	bells, next, total := 0, make([]int, producers), 0
	world := World{
		Shared: func(d *Digest) {
			box.Digest(d, all)
			d.Add(uint64(bells))
		},
		Ghost: func(d *Digest) {
			for _, n := range next {
				d.Add(uint64(n))
			}
		},
	}
	for p := range producers {
		world.Actors = append(world.Actors, func() {
			for k := range each {
				Forget(k)
				if w.push(box, all[p*each+k]) {
					bells++
				}
			}
		})
	}
	world.Actors = append(world.Actors, func() {
		for total < len(all) {
			Forget(total)
			Await(func() bool { return bells > 0 })
			bells--
			for l := w.take(box); l != nil; {
				if l.seq != next[l.from] {
					panic(fmt.Sprintf("producer %d: letter %d, want %d", l.from, l.seq, next[l.from]))
				}
				next[l.from]++
				total++
				l = l.InboxHook().Unlink()
			}
		}
	})
	world.End = func() error {
		if total != len(all) || box.head.Load() != nil {
			return fmt.Errorf("%d of %d letters came, and nobody is told", total, len(all))
		}
		return nil
	}
	return world
}

// Rule: whatever the order of steps, each object comes once, in its producer's order, and
// who finds the inbox empty is the one who must tell the consumer.
func TestInboxEveryInterleaving(t *testing.T) {
	for _, n := range sizes([2]int{1, 3}, [2]int{2, 1}, [2]int{2, 2}, [2]int{3, 1}, [2]int{2, 3}) {
		states, err := Explore(modelLimit, func() World { return boxWorld(rightBox, n[0], n[1]) })
		t.Logf("%d producers of %d: %d states", n[0], n[1], states)
		if err != nil {
			t.Errorf("%d producers of %d: %v", n[0], n[1], err)
		}
	}
}

// The model finds what each step defends against.
func TestInboxModelFindsMistakes(t *testing.T) {
	for name, w := range map[string]boxWays{
		"the head is stored, not swapped if still the same": {push: func(q *letterbox, l *letter) bool {
			yield()
			h := q.head.Load()
			l.InboxHook().next = h
			yield()
			q.head.Store(l)
			return h == nil
		}},
		"the link is written after the object is published": {push: func(q *letterbox, l *letter) bool {
			yield()
			h := q.head.Swap(l)
			yield()
			l.InboxHook().next = h
			return h == nil
		}},
		"the head is loaded, then emptied": {take: func(q *letterbox) *letter {
			yield()
			h := q.head.Load()
			yield()
			q.head.Store(nil)
			var first *letter
			for h != nil {
				hook := h.InboxHook()
				h, hook.next, first = hook.next, first, h
			}
			return first
		}},
		"the order is not turned round": {take: func(q *letterbox) *letter {
			yield()
			return q.head.Swap(nil)
		}},
	} {
		if w.push == nil {
			w.push = rightBox.push
		}
		if w.take == nil {
			w.take = rightBox.take
		}
		states, err := Explore(modelLimit, func() World { return boxWorld(w, 2, 2) })
		if err == nil {
			t.Errorf("%s: not found in %d states", name, states)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
