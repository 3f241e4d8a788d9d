//go:build verbena_model

package actor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// noBody is the body of an actor that has nothing to do.
type noBody struct{ body }

func (noBody) receive() bool { return false }

// hired is a pool that counts the workers which were hired and have not begun.
type hired struct{ starts int }

func (h *hired) Submit(func()) error { h.starts++; return nil }
func (h *hired) Release()            {}

// poolWorld is a pool for actors that are each queued once, by a goroutine of its
// own, and run by workers that are goroutines of the model.
func poolWorld(limit int32, actors int) func() model.World {
	return func() model.World {
		h := new(hired)
		w := &workers{pool: h, cap: limit}
		w.body = w.work
		all := make([]*core, actors)
		for i := range all {
			all[i] = &core{body: noBody{}, phase: up, opt: Options{Throughput: 1}}
		}
		line := func(d *model.Digest) {
			w.in.Digest(d, all)
			d.Add(uint64(slices.Index(all, w.line) + 1))
		}
		m := model.World{
			Shared: func(d *model.Digest) {
				line(d)
				for _, a := range all {
					d.Add(uint64(a.word.s.Load()))
				}
				d.Add(uint64(w.busy.Load())<<32 | uint64(h.starts))
			},
			Reads: func(label string) uint64 {
				switch label {
				case "take":
					var d model.Digest
					line(&d)
					return d.Sum()
				case "pushed", "hire", "left":
					return uint64(w.busy.Load())
				}
				return 0
			},
			Atomic: func(label string) bool { return strings.HasPrefix(label, "box.") || label == "unlink" },
			Check: func() error {
				if w.busy.Load() > limit {
					return errors.New("more workers than there may be")
				}
				return nil
			},
			End: func(blocked []string) error {
				if w.waiting() {
					return fmt.Errorf("lost wake-up: somebody is queued; blocked: %v", blocked)
				}
				return nil
			},
		}
		for i, a := range all {
			m.Act(fmt.Sprint("queue", i), func() {
				model.Yield("begin")
				a.word.s.Store(scheduled) // as wake leaves it
				w.queue(a)
			})
		}
		for range limit + 1 { // one may be on its way out while the next comes
			m.Act("worker", func() {
				for {
					model.Forget(0)
					model.Block("wait", func() bool { return h.starts > 0 })
					h.starts--
					w.work()
				}
			})
		}
		return m
	}
}

// Rule: in every interleaving of queueing and of workers that leave, everybody queued
// is run, and no more workers run than may.
func TestModelWorkers(t *testing.T) {
	for _, c := range []struct {
		limit  int32
		actors int
	}{{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}} {
		model.Holds(t, fmt.Sprintf("%d workers, %d actors", c.limit, c.actors), poolWorld(c.limit, c.actors))
	}
}
