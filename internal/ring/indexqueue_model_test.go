//go:build verbena_model

package ring

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// queueWorld has a producer that pushes the n indices in turn, each when it is free again, until it has
// pushed total. Consumers pop until all are popped, and give each index back: even consumers one by one, odd
// consumers two together.
func queueWorld(n, consumers, total int) model.World {
	q := NewIndexQueue(n)
	pushed, popped := 0, 0
	queued := make([]bool, n) // index i is in the queue
	world := model.World{
		Shared: func(d *model.Digest) {
			d.Add(q.tail.Load())
			d.Add(q.head.Load())
			for i := range q.entries {
				d.Add(uint64(q.entries[i].load()))
			}
			d.Add(uint64(pushed))
			d.Add(uint64(popped))
		},
		Ghost: func(d *model.Digest) {
			for _, is := range queued {
				d.Add(uint64(ifTrue(is)))
			}
		},
	}
	world.Act("producer", func() {
		for ; pushed < total; pushed++ {
			model.Forget(pushed)
			i := pushed % n
			model.Block("free", func() bool { return !queued[i] })
			queued[i] = true
			q.Push(uint32(i))
		}
	})
	for c := range consumers {
		take := func(i uint32) {
			if want := popped % n; int(i) != want || !queued[i] {
				panic(fmt.Sprintf("pop %d gave index %d, want %d", popped, i, want))
			}
			queued[i] = false
			popped++
		}
		world.Act(fmt.Sprint("consumer", c), func() {
			for rounds := 0; popped < total; rounds++ {
				model.Forget(0)
				model.Block("await", func() bool { return popped == total || q.head.Load() != q.tail.Load() })
				if c%2 == 1 {
					var is [2]uint32
					for _, i := range is[:q.PopN(is[:])] {
						take(i)
					}
				} else if i, ok := q.Pop(); ok {
					take(i)
				}
			}
		})
	}
	world.End = func([]string) error {
		if popped != total || q.head.Load() != q.tail.Load() {
			return fmt.Errorf("%d of %d indices were popped", popped, total)
		}
		return nil
	}
	return world
}

func ifTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Rule: in every order of steps the indices are popped once each, in the order of pushing, also when the
// entries are used again.
func TestModelIndexQueue(t *testing.T) {
	for _, c := range []struct {
		n, consumers, total int
		large               bool
	}{{1, 2, 3, false}, {2, 2, 4, false}, {2, 3, 3, false}, {4, 2, 6, true}} {
		if c.large && !model.Large {
			continue
		}
		model.Holds(t, fmt.Sprintf("%d indices, %d consumers, %d pushes", c.n, c.consumers, c.total), func() model.World { return queueWorld(c.n, c.consumers, c.total) })
	}
}
