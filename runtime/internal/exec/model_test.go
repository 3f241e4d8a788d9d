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
// If closing is set, one more goroutine closes the pool at any time.
func world(most, jobs int, closing bool) func() model.World {
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
				d.Add(uint64(p.parked.Load())<<32 | uint64(len(p.wake)))
				d.Bits(p.closed.Load())
				for range len(p.wake) {
					t := <-p.wake
					p.wake <- t
					d.Add(uint64(t))
				}
			},
			Reads: func(label string) uint64 {
				switch label {
				case "take":
					var d model.Digest
					line(&d)
					return d.Sum()
				case "pushed", "hire", "left":
					return uint64(p.busy.Load())
				case "parked":
					if p.closed.Load() {
						return 1
					}
				case "unpark", "unpark.swap", "park", "park.swap":
					return uint64(p.parked.Load())
				}
				return 0
			},
			Atomic: func(label string) bool { return strings.HasPrefix(label, "box.") || label == "unlink" },
			Check: func() error {
				if p.busy.Load() > int32(most) {
					return errors.New("more workers than there may be")
				}
				if p.parked.Load() > int32(most) {
					return errors.New("more parked workers than there may be")
				}
				return nil
			},
			End: func(blocked []string) error {
				for i, j := range all {
					if j.runs != 1 {
						return fmt.Errorf("job %d was run %d times; blocked: %v", i, j.runs, blocked)
					}
				}
				waiting := 0
				for _, b := range blocked {
					if strings.HasSuffix(b, "@receive") {
						waiting++
					}
				}
				if n := int(p.parked.Load()); n != waiting || closing && n != 0 || len(p.wake) != 0 {
					return fmt.Errorf("%d workers are parked, and %d tokens are left; blocked: %v", n, len(p.wake), blocked)
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
		if closing {
			m.Act("close", func() {
				model.Yield("begin")
				p.Close()
			})
		}
		for range most + 1 { // one may be about to park while the next begins
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
	for _, c := range []struct {
		most, jobs int
		closing    bool
	}{{1, 1, false}, {1, 2, false}, {1, 3, false}, {2, 2, false}, {2, 3, false}, {1, 2, true}, {2, 2, true}} {
		model.Holds(t, fmt.Sprintf("%d workers, %d jobs, closing %t", c.most, c.jobs, c.closing), world(c.most, c.jobs, c.closing))
	}
}

// Rule: a worker looks once more before it parks, and parks and wakes are counted.
func TestModelMutants(t *testing.T) {
	lastLook := func(most, jobs int) *mutate.Mutant {
		return mutate.New(fmt.Sprintf("the last look, %d workers, %d jobs", most, jobs), "run 0 times", world(most, jobs, false)).
			In("exec.go", "!p.waiting() || !p.res", "MUTANT || !p.waiting() || !p.res")
	}
	mutate.Test(t, lastLook(1, 2), lastLook(1, 3), lastLook(2, 3),
		mutate.New("a worker that ends with the pool does not see that it was woken", "run 0 times|tokens", world(1, 2, true)).
			In("exec.go", "&& p.unpark() {", "&& (p.unpark() || MUTANT) {"),
		mutate.New("a worker that parks does not see that the pool was closed", "parked", world(1, 1, true)).
			In("exec.go", "if p.closed.Load() &&", "if !MUTANT && p.closed.Load() &&"),
		mutate.New("a worker is woken without being counted off", "more workers|run|tokens|parked", world(1, 2, false)).
			In("exec.go", "if p.parked.CompareAndSwap(n, n-1) {", "if MUTANT || p.parked.CompareAndSwap(n, n-1) {"))
}
