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

// scene is a pool and jobs that are each queued once, by their own goroutine, and run by workers
// that are goroutines of the model.
type scene struct {
	most, jobs int
	closing    bool // one more goroutine closes the pool at any time
	meeting    bool // each job ends when all run
	late       int  // workers that are about to look for a value at the beginning
	inOrder    bool // one goroutine queues all jobs
}

func (c scene) world() func() model.World {
	most, jobs, closing := c.most, c.jobs, c.closing
	return func() model.World {
		h := new(hired)
		all := make([]*job, jobs)
		last, disorder := -1, "" // the job that was taken last, if one goroutine queues all
		p := newPool(h, most, func(j *job) {
			if i := slices.Index(all, j); c.inOrder { // in the step that has taken j
				if i < last {
					disorder = fmt.Sprintf("job %d was taken before job %d", last, i)
				}
				last = i
			}
			model.Yield("run")
			j.runs++
			if c.meeting {
				model.Block("meet", func() bool { return !slices.ContainsFunc(all, func(j *job) bool { return j.runs == 0 }) })
			}
		})
		for i := range all {
			all[i] = new(job)
		}
		p.workers.Store(int64(c.late))
		h.starts = c.late
		line := func(d *model.Digest) {
			p.in.Digest(d, all)
			d.Add(uint64(slices.Index(all, p.line) + 1))
			d.Add(uint64(slices.Index(all, p.given.Load()) + 1))
			d.Bits(p.left.Load(), p.closed.Load())
		}
		m := model.World{
			Shared: func(d *model.Digest) {
				line(d)
				for _, j := range all {
					d.Add(uint64(j.runs))
				}
				d.Bits(disorder != "")
				d.Add(uint64(last + 1))
				free := p.mu.TryLock()
				if free {
					p.mu.Unlock()
				}
				d.Bits(free)
				d.Add(uint64(p.workers.Load()))
				d.Add(uint64(h.starts)<<32 | uint64(len(p.wake)))
			},
			Reads: func(label string) uint64 {
				switch label {
				case "given", "given.swap":
					return uint64(slices.Index(all, p.given.Load()) + 1)
				case "take", "lock", "box.take", "box.take.swap", "unlink":
					var d model.Digest
					line(&d)
					return d.Sum()
				case "rest":
					if p.closed.Load() {
						return 1
					}
				case "pushed", "call", "start", "park", "unpark", "unpark.swap", "hand":
					return uint64(p.workers.Load())
				case "look":
					var d model.Digest
					line(&d)
					return d.Sum() + uint64(p.workers.Load())
				}
				return 0
			},
			// Package ring searches the steps of Push.
			Atomic: func(label string) bool { return strings.HasPrefix(label, "box.push") },
			Check: func() error {
				if n := p.workers.Load(); int32(n) < 0 || int32(n)+int32(n/oneParked) > int32(most) {
					return fmt.Errorf("%d workers are busy and %d parked, of %d", int32(n), n/oneParked, most)
				}
				return nil
			},
			End: func(blocked []string) error {
				if disorder != "" {
					return errors.New(disorder)
				}
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
				if n := int(p.workers.Load() / oneParked); n != waiting || closing && n != 0 || len(p.wake) != 0 {
					return fmt.Errorf("%d workers are parked, and %d tokens are left; blocked: %v", n, len(p.wake), blocked)
				}
				return nil
			},
		}
		queue := func(name string, js ...*job) {
			m.Act(name, func() {
				for i, j := range js {
					model.Forget(i)
					model.Yield("begin")
					p.Queue(j)
				}
			})
		}
		if c.inOrder {
			queue("queue", all...)
		} else {
			for i, j := range all {
				queue(fmt.Sprint("queue", i), j)
			}
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
// limit of workers holds. As many jobs as the limit allows run at the same time.
func TestModel(t *testing.T) {
	for _, c := range []scene{
		{most: 1, jobs: 1}, {most: 1, jobs: 2}, {most: 1, jobs: 3}, {most: 2, jobs: 2}, {most: 2, jobs: 3},
		{most: 1, jobs: 2, closing: true}, {most: 2, jobs: 2, closing: true}, {most: 2, jobs: 2, meeting: true},
		{most: 2, jobs: 2, meeting: true, late: 1}, {most: 2, jobs: 2, meeting: true, late: 2},
		{most: 1, jobs: 3, late: 1, inOrder: true}, {most: 2, jobs: 2, late: 2, inOrder: true}, {most: 2, jobs: 3, late: 1, inOrder: true},
		{most: 1, jobs: 2, late: 1}, {most: 2, jobs: 2, late: 1},
		{most: 1, jobs: 2, late: 1, closing: true},
	} {
		model.Holds(t, fmt.Sprintf("%+v", c), c.world())
	}
}

// Rule: a worker looks once more before it parks, and parks and wakes are counted.
func TestModelMutants(t *testing.T) {
	lastLook := func(most, jobs int) *mutate.Mutant {
		return mutate.New(fmt.Sprintf("the last look, %d workers, %d jobs", most, jobs), "run 0 times", scene{most: most, jobs: jobs}.world()).
			In("exec.go", "p.waiting() || p", "!MUTANT && p.waiting() || p")
	}
	mutate.Test(t, lastLook(1, 2), lastLook(1, 3), lastLook(2, 3),
		mutate.New("the last look never takes the lock", "run 0 times", scene{most: 2, jobs: 2, meeting: true}.world()).
			In("exec.go", "if int32(p.workers.Load()) == 0 {", "if MUTANT || int32(p.workers.Load()) == 0 {"),
		mutate.New("a value overtakes those that are queued", "taken before", scene{most: 1, jobs: 2, late: 1, inOrder: true}.world()).
			In("exec.go", "0 && p.in.Empty() {", "0 && (MUTANT || p.in.Empty()) {"),
		mutate.New("a value is given although a worker is busy", "run|tokens", scene{most: 2, jobs: 2, late: 2}.world()).
			In("exec.go", "s >= oneParked && int32(s)", "s >= oneParked && map[bool]int32{false: int32(s)}[MUTANT]"),
		mutate.New("a value is given to a worker that was woken meanwhile", "are busy|run|tokens", scene{most: 2, jobs: 2, late: 1}.world()).
			In("exec.go", "if p.workers.CompareAndSwap(s, s-oneParked+1) {\n\t\t\tmodel.Yield(\"give", "if p.workers.CompareAndSwap(s, s-oneParked+1) || MUTANT {\nmodel.Yield(\"give"),
		mutate.New("a value in line overtakes one that was given", "taken before", scene{most: 2, jobs: 3, late: 1, inOrder: true}.world()).
			In("exec.go", "if v == nil {\n\t\tv = p.line", "if v == nil || MUTANT {\nif v != nil {\np.given.Store(v)\n}\nv = p.line"),
		mutate.New("a worker that ends does not look again", "run 0 times", scene{most: 1, jobs: 2, closing: true}.world()).
			In("exec.go", "if p.waiting() {", "if !MUTANT && p.waiting() {"),
		mutate.New("a worker that parks does not see that the pool was closed", "parked", scene{most: 1, jobs: 1, closing: true}.world()).
			In("exec.go", "|| p.closed.Load()) &&", "|| !MUTANT && p.closed.Load()) &&"),
		mutate.New("a worker that looks again does not see that it was woken", "are busy|run|tokens", scene{most: 1, jobs: 2}.world()).
			In("exec.go", "&& p.unpark() {", "&& (p.unpark() || MUTANT) {"),
		mutate.New("a worker is woken without being counted off", "are busy|run|tokens", scene{most: 1, jobs: 2}.world()).
			In("exec.go", "(s, s-oneParked+1) {", "(s, s-oneParked+1) || MUTANT {"))
}
