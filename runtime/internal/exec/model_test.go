//go:build verbena_model

package exec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// hired counts started goroutines of the model that have not begun.
type hired struct{ starts int }

func (h *hired) Submit(func()) error { h.starts++; return nil }
func (h *hired) Release()            {}

// world is a pool and jobs that are each queued once, by their own goroutine, and run by workers
// that are goroutines of the model.
func world(most, jobs int) func() model.World {
	return func() model.World {
		h := new(hired)
		p := newPool(h, most, func(j *job) {
			model.Yield("run")
			j.runs++
		})
		all := make([]*job, jobs)
		for i := range all {
			all[i] = new(job)
		}
		line := func(d *model.Digest) {
			p.in.Digest(d, all)
			d.Add(uint64(slices.Index(all, p.line) + 1))
		}
		m := model.World{
			Shared: func(d *model.Digest) {
				line(d)
				for _, j := range all {
					d.Add(uint64(j.runs))
				}
				d.Add(uint64(p.busy.Load())<<32 | uint64(h.starts))
			},
			Reads: func(label string) uint64 {
				switch label {
				case "take":
					var d model.Digest
					line(&d)
					return d.Sum()
				case "pushed", "hire", "left":
					return uint64(p.busy.Load())
				}
				return 0
			},
			Atomic: func(label string) bool { return strings.HasPrefix(label, "box.") || label == "unlink" },
			Check: func() error {
				if p.busy.Load() > int32(most) {
					return errors.New("more workers than there may be")
				}
				return nil
			},
			End: func(blocked []string) error {
				for i, j := range all {
					if j.runs != 1 {
						return fmt.Errorf("job %d was run %d times; blocked: %v", i, j.runs, blocked)
					}
				}
				return nil
			},
		}
		for i, j := range all {
			m.Act(fmt.Sprint("queue", i), func() {
				model.Yield("begin")
				p.Queue(j)
			})
		}
		for range most + 1 { // one may be leaving while the next begins
			m.Act("worker", func() {
				for {
					model.Forget(0)
					model.Block("wait", func() bool { return h.starts > 0 })
					h.starts--
					p.work()
				}
			})
		}
		return m
	}
}

// Rule: in every interleaving of queueing and of leaving workers, every job is run once, and the
// limit of workers holds.
func TestModel(t *testing.T) {
	for _, c := range []struct{ most, jobs int }{{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}} {
		model.Holds(t, fmt.Sprintf("%d workers, %d jobs", c.most, c.jobs), world(c.most, c.jobs))
	}
}

// Rule: a worker that leaves must look once more.
func TestModelMutants(t *testing.T) {
	lastLook := func(most, jobs int) *mutate.Mutant {
		return mutate.New(fmt.Sprintf("the last look, %d workers, %d jobs", most, jobs), "run 0 times", world(most, jobs)).
			In("exec.go", "!p.waiting()", "MUTANT || !p.waiting()")
	}
	mutate.Test(t, lastLook(1, 2), lastLook(1, 3), lastLook(2, 3))
}
