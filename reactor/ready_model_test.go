//go:build verbena_model

package reactor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// readyWays has the two functions under test. A test may replace them by wrong ones.
type readyWays struct {
	submit func(*Queue, uint32) // submits a filled slot, as a submitter does
	gather func(*Reactor)       // gathers the queues of the ready list, as the holder does
}

var rightReady = readyWays{
	submit: func(q *Queue, i uint32) {
		q.sendStack.Push(i)
		model.Forget(pushed + int(q.id)<<10 + int(i)) // q.submit uses no value read by Push
		q.submit(NoWakeup)
	},
	gather: func(r *Reactor) { r.gather(false) },
}

// The argument of model.Forget tells the model which step an actor has reached. So the arguments at
// different steps of an actor must differ. Each argument after a Push is at least this constant;
// every other argument is smaller.
const pushed = 1 << 20

type idleQP struct{ verbs.QP }

// readyBed returns a reactor and queues. Only the fields that Queue.submit and Reactor.gather need
// are set.
func readyBed(queues, slots int) (*Reactor, []*Queue) {
	r := new(Reactor)
	// With CallerDriving, a submission with NoWakeup does not use the Sleeper, which may be nil.
	r.tok = turn.New(nil, nil, turn.Config{CallerDriving: true})
	qs := make([]*Queue, queues)
	for k := range qs {
		q := &Queue{r: r, id: uint32(k), qp: idleQP{}, sendStack: ring.NewIndexStack(slots), order: newFIFO(slots)}
		q.cfg.SignalEvery = 1
		q.tab = &table{slots: make([]slot, slots), bytes: make([]uint32, slots), sendWR: make([]verbs.SendWR, slots)}
		qs[k] = q
	}
	return r, qs
}

func listed(qs []*Queue) (all []*readyQueue) {
	for _, q := range qs {
		all = append(all, (*readyQueue)(q))
	}
	return all
}

// readyWorld returns a world of several submitters and one holder. Each submitter submits one
// request to queue to[0], then one to queue to[1], and so on. The holder gathers whenever a queue
// is on the ready list.
func readyWorld(w readyWays, submitters int, to ...int) model.World {
	queues, each := slices.Max(to)+1, len(to)
	r, qs := readyBed(queues, submitters*each)
	// For each queue and submitter, next has 1 + the index, in the submitter's sequence of requests,
	// of the last request that was posted.
	next, total := make([]int, queues*submitters), 0
	world := model.World{
		Shared: func(d *model.Digest) {
			r.ready.Digest(d, listed(qs))
			for _, q := range qs {
				q.queued.Digest(d)
				q.sendStack.Digest(d)
			}
		},
		Ghost: func(d *model.Digest) {
			for _, n := range next {
				d.Add(uint64(n))
			}
			for _, q := range qs {
				d.Add(uint64(q.order.tail))
				for k := q.order.head; k != q.order.tail; k++ {
					d.Add(uint64(q.order.at[k&q.order.mask]))
				}
			}
		},
	}
	for s := range submitters {
		world.Act(fmt.Sprint("submitter", s), func() {
			for k, n := range to {
				model.Forget(k)
				w.submit(qs[n], uint32(s*each+k))
			}
		})
	}
	world.Act("holder", func() {
		for total < submitters*each {
			model.Forget(total)
			model.Block("await", func() bool { return !r.ready.Empty() })
			w.gather(r)
			r.batch.Sends, r.sendOwners = nil, nil
			for n, q := range qs {
				for ; q.order.len() > 0; total++ {
					i := int(q.order.pop())
					last := &next[n*submitters+i/each]
					if want := *last + slices.Index(to[*last:], n); i%each != want {
						panic(fmt.Sprintf("queue %d posts request %d of submitter %d, want %d", n, i%each, i/each, want))
					}
					*last = i%each + 1
				}
			}
		}
	})
	world.End = func([]string) error {
		if want := submitters * each; total != want {
			return fmt.Errorf("%d of %d requests are posted, and no queue is on the ready list", total, want)
		}
		return nil
	}
	return world
}

// Rule: every request is posted once, even if no request is submitted after it. The requests of one
// submitter to one queue are posted in order. (A queue with a request on its stack is always in one
// of three states: the queue is on the ready list, or the submitter is about to push the queue
// there, or the holder is about to take the stack.)
func TestModelReady(t *testing.T) {
	for _, c := range []struct {
		submitters int
		to         []int
		large      bool
	}{{2, []int{0}, false}, {1, []int{0, 0, 0}, false}, {1, []int{0, 1}, false}, {2, []int{0, 0}, true}, {1, []int{0, 1, 0, 1}, true}} {
		if c.large && !model.Large {
			continue
		}
		model.Holds(t, fmt.Sprintf("%+v", c), func() model.World { return readyWorld(rightReady, c.submitters, c.to...) })
	}
}

// The model finds each of these mistakes.
func TestModelReadyFindsMistakes(t *testing.T) {
	gather := func(each func(*Queue) *readyQueue) func(*Reactor) {
		return func(r *Reactor) {
			for q := r.ready.TakeAll(); q != nil; {
				q = each((*Queue)(q))
			}
		}
	}
	for name, w := range map[string]readyWays{
		"the queue is left after its stack is taken": {gather: gather(func(q *Queue) *readyQueue {
			next := q.hook.Unlink()
			q.gatherSends()
			q.queued.Leave()
			return next
		})},
		"the queue is left before its link is read": {gather: gather(func(q *Queue) *readyQueue {
			q.queued.Leave()
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"the queue is never left": {gather: gather(func(q *Queue) *readyQueue {
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"the queue is listed before the request is on its stack": {submit: func(q *Queue, i uint32) {
			q.submit(NoWakeup)
			q.sendStack.Push(i)
		}},
		"a listed queue is listed again": {submit: func(q *Queue, i uint32) {
			q.sendStack.Push(i)
			q.queued.Enter()
			q.r.ready.Push((*readyQueue)(q))
		}},
	} {
		if w.submit == nil {
			w.submit = rightReady.submit
		}
		if w.gather == nil {
			w.gather = rightReady.gather
		}
		model.Breaks(t, name, "", func() model.World { return readyWorld(w, 1, 0, 1, 0) })
	}
}

// The model of ready_mixed_model_test.go finds each of these mistakes.
func TestModelReadyOfAllWaysFindsMistakes(t *testing.T) {
	gather := func(take func(*Queue)) mixedWays {
		w := rightMixed
		w.gather = func(r *Reactor) {
			for q := r.ready.TakeAll(); q != nil; {
				next := q.hook.Unlink()
				take((*Queue)(q))
				q = next
			}
		}
		w.own = func(r *Reactor) { r.gather(false) }
		return w
	}
	own := func(how func(*Queue)) mixedWays {
		w := rightMixed
		w.own = func(r *Reactor) {
			q := r.ownBacklog
			r.ownBacklog = nil
			how(q)
		}
		return w
	}
	adds := func(how func(*Queue, uint32)) mixedWays {
		w := rightMixed
		w.add = how
		return w
	}
	follows := func(how func(*Queue, uint32)) mixedWays {
		w := rightMixed
		w.follow = how
		return w
	}
	for name, c := range map[string]struct {
		mixedWays
		mix
	}{
		"the holder's request goes past what its goroutine submitted": {
			adds(func(q *Queue, i uint32) { q.join(i, i, 1) }), mix{submitters: 1, lone: "qw"},
		},
		"the holder's request is posted beside the list of its queue": {
			own(func(q *Queue) { q.gatherSends() }), mix{submitters: 2, lone: "w"},
		},
		"the holder's request leaves the receives": {
			own(func(q *Queue) { q.list() }), mix{lone: "lw"},
		},
		"the holder's own queue is not gathered": {own(func(*Queue) {}), mix{lone: "w"}},
		"the queue is left between its two stacks": {gather(func(q *Queue) {
			q.gatherRecvs()
			q.queued.Leave()
			q.gatherSends()
		}), mix{submitters: 1, receivers: 1}},
		"a sink's request goes before what the sink submitted": {follows(func(q *Queue, i uint32) {
			q.join(i, i, 1)
			q.ready()
		}), mix{submitters: 1, sink: "sf"}},
		"a sink's request is not listed": {follows(func(q *Queue, i uint32) { q.add(i) }), mix{submitters: 1, sink: "f"}},
		"the stack is taken before the backlog": {gather(func(q *Queue) {
			q.queued.Leave()
			older := q.backlog
			q.backlog.n = 0
			if q.collect(); older.n > 0 {
				q.join(older.first, older.last, older.n)
			}
			if q.backlog.n > 0 {
				q.list()
			}
		}), mix{submitters: 1, sink: "fs"}},
	} {
		model.Breaks(t, name, "", func() model.World { return mixedWorld(c.mixedWays, c.mix) })
	}
}
