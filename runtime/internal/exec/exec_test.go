package exec

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/ring"
)

func TestMain(m *testing.M) { leak.Main(m) }

// job is the value that the tests queue.
type job struct {
	fn   func()
	runs int
	hook ring.Hook[job]
}

func (j *job) InboxHook() *ring.Hook[job] { return &j.hook }

// jobs returns a pool that calls queued jobs and is closed at the end of the test.
func jobs(t *testing.T, most int) *Pool[job, *job] {
	t.Helper()
	p, err := New(most, func(j *job) { j.fn() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Rule: jobs run in the order of queueing, each once.
func TestOrder(t *testing.T) {
	p := jobs(t, 1)
	const n = 1000
	var order []int // appended by one job at a time
	all := make(chan struct{})
	for i := range n {
		p.Queue(&job{fn: func() {
			if order = append(order, i); len(order) == n {
				close(all)
			}
		}})
	}
	<-all
	if !slices.IsSorted(order) {
		t.Errorf("jobs ran in the order %v", order)
	}
}

// Rule: up to the limit run at once, and no more, even after Close; queueing does not wait for
// them.
func TestAtMostSoMany(t *testing.T) {
	p := jobs(t, 3)
	for range 2 {
		var running atomic.Int32
		var all sync.WaitGroup
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		for range cap(begun) {
			all.Add(1)
			p.Queue(&job{fn: func() {
				defer all.Done()
				if n := running.Add(1); n > 3 {
					t.Errorf("%d run at once", n)
				}
				begun <- struct{}{}
				<-gate
				running.Add(-1)
			}})
		}
		if n := p.workers.Load(); n > 3 { // fewer for a moment, when a worker ends because of the last Close
			t.Errorf("%d workers were called for %d jobs, want at most 3", n, cap(begun))
		}
		for range 3 {
			<-begun
		}
		close(gate)
		all.Wait()
		p.Close()
	}
}

// Rule: a job that ends its goroutine frees its place for the next; Go takes no place.
func TestGoexit(t *testing.T) {
	p := jobs(t, 1)
	gate, ran := make(chan struct{}), make(chan struct{}, 3)
	p.Queue(&job{fn: func() { <-gate; runtime.Goexit() }})
	for range 2 {
		p.Queue(&job{fn: func() { ran <- struct{}{}; runtime.Goexit() }})
	}
	p.Go(func() { close(gate) })
	<-ran
	<-ran
	p.Queue(&job{fn: func() { ran <- struct{}{} }})
	<-ran
}

// Rule: a job may be queued again while it runs; in steady state that allocates nothing.
func TestQueueAgain(t *testing.T) {
	p, ran := jobs(t, 2), make(chan struct{})
	j := new(job)
	j.fn = func() {
		if j.runs++; j.runs%2 == 1 {
			p.Queue(j)
			return
		}
		ran <- struct{}{}
	}
	if n := testing.AllocsPerRun(1000, func() { p.Queue(j); <-ran }); n >= 1 {
		t.Errorf("%v allocations to queue a job twice", n)
	}
	if j.runs != 2*1001 {
		t.Errorf("%d runs, want %d", j.runs, 2*1001)
	}
}

// Rule: of two jobs queued together both run at once. (The bug: a worker that looked for a job while another took both
// off the inbox, and before it had noted that one was left, found none and parked. If the first job then waited for the
// second, both waited for ever.)
func TestTwoJobsRunAtOnce(t *testing.T) {
	p := jobs(t, 2)
	for range 100_000 {
		met := make(chan struct{})
		var all sync.WaitGroup
		all.Add(2)
		p.Queue(&job{fn: func() { <-met; all.Done() }})
		p.Queue(&job{fn: func() { close(met); all.Done() }})
		all.Wait()
	}
}
