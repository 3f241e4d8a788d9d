//go:build verbena_model

package ring

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

type letterbox = Inbox[letter, *letter]

// boxWorld has producers who push some letters each, and ring when they found it empty,
// and a consumer who looks when it was rung for.
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

// Rule: whatever the order of steps, each object comes once, in its producer's order, and
// who finds the inbox empty is the one who must tell the consumer.
func TestModelInbox(t *testing.T) {
	for _, n := range sizes([2]int{1, 3}, [2]int{2, 1}, [2]int{2, 2}, [2]int{3, 1}, [2]int{2, 3}) {
		model.Holds(t, fmt.Sprintf("%d producers of %d", n[0], n[1]), func() model.World { return boxWorld(n[0], n[1]) })
	}
}
