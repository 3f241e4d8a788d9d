//go:build verbena_model

package ring

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// mpscWorld has a producer of one value, and one of several, who takes each out again or leaves
// them there.
func mpscWorld(size, several int, popped bool) model.World {
	q := NewMPSC[int](size)
	pushed := 0
	push := func() {
		if q.Push(1) == Pushed {
			pushed++
		} else if popped {
			model.Failf("full, with %d of %d in it", q.Len(), size)
		}
	}
	world := model.World{
		Shared: func(d *model.Digest) {
			d.Add(q.tail.Load())
			d.Add(q.head.Load())
			for i := range q.places {
				d.Add(q.places[i].turn.Load())
			}
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
				q.Pop()
			}
		}
	})
	return world
}

// Rule: a producer that is overtaken between reading the tail and its place is not
// told that the queue is full: it tries again. Whether others push and pop there
// once, or so often that the place has come round.
func TestModelMPSC(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		for _, several := range []int{1, 2, 3, 4, 5} {
			for _, popped := range []bool{true, false} {
				model.Holds(t, fmt.Sprintf("of %d, overtaken by %d, popped %v", size, several, popped), func() model.World { return mpscWorld(size, several, popped) })
			}
		}
	}
}
