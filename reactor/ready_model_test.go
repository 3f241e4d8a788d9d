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
		model.Forget(pushed + int(q.id)<<10 + int(i)) // what q.submit does depends on no value that Push has read
		q.submit(NoWakeup)
	},
	gather: func(r *Reactor) { r.gather(false) },
}

// pushed is the smallest argument of model.Forget after a Push. The argument tells the model which step
// an actor has reached, so the arguments at different steps of an actor must differ: the arguments
// before a Push are smaller than pushed.
const pushed = 1 << 20

// idleQP is a queue pair whose methods are not called.
type idleQP struct{ verbs.QP }

// readyBed returns a reactor and queues. Only the fields that Queue.submit and Reactor.gather need
// are set.
func readyBed(queues, slots int) (*Reactor, []*Queue) {
	r := new(Reactor)
	// With CallerDriving, a submission with NoWakeup does not use the Sleeper, so the Sleeper may be nil.
	r.tok = turn.New(nil, nil, turn.Config{CallerDriving: true})
	qs := make([]*Queue, queues)
	for k := range qs {
		links := ring.NewLinks(slots)
		q := &Queue{r: r, id: uint32(k), qp: idleQP{}, links: links, sendStack: ring.NewIndexStack(links), order: order{links: links}, tab: madeTable(slots)}
		q.cfg.SignalEvery = 1
		qs[k] = q
	}
	return r, qs
}

// madeTable returns a table and makes its n slots, because no goroutine of the model acquires a slot.
func madeTable(n int) *table {
	t := newTable(n, nil, 0)
	for i := range t.chunks {
		c := &chunk{requests: new([chunkSlots]verbs.SendWR), bytes: new([chunkSlots]uint32), block: &block{receives: new([chunkSlots]verbs.RecvWR)}}
		t.chunks[i].Store(c)
	}
	return t
}

func listed(qs []*Queue) (all []*readyQueue) {
	for _, q := range qs {
		all = append(all, (*readyQueue)(q))
	}
	return all
}

// readyWorld returns a model.World with several submitters and one holder. Each submitter submits one
// request to queue to[0], then one to queue to[1], and so on. The holder gathers whenever a queue
// is on the ready list.
func readyWorld(w readyWays, submitters int, to ...int) model.World {
	queues, each := slices.Max(to)+1, len(to)
	r, qs := readyBed(queues, submitters*each)
	// next[n*submitters+s] belongs to queue n and submitter s. It is 1 more than the index, in the
	// submitter's sequence, of the latest request that was posted to this queue; 0 if there is none.
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
				d.Add(uint64(q.order.n))
				for i := range q.order.all() {
					d.Add(uint64(i))
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
				for ; q.order.n > 0; total++ {
					i := int(q.order.pop())
					last := &next[n*submitters+i/each]
					if want := *last + slices.Index(to[*last:], n); i%each != want {
						panic(fmt.Sprintf("queue %d posts request %d of submitter %d, want request %d first", n, i%each, i/each, want))
					}
					*last = i%each + 1
				}
			}
		}
	})
	world.End = func([]string) error {
		if want := submitters * each; total != want {
			return fmt.Errorf("no actor can go on, but only %d of %d requests are posted", total, want)
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

// Rule: the model finds each of these mistakes. The name of each case describes its mistake.
func TestModelReadyFindsMistakes(t *testing.T) {
	gather := func(each func(*Queue) *readyQueue) func(*Reactor) {
		return func(r *Reactor) {
			for q := r.ready.TakeAll(); q != nil; {
				q = each((*Queue)(q))
			}
		}
	}
	for name, w := range map[string]readyWays{
		"queued.Leave is called after the stack is taken": {gather: gather(func(q *Queue) *readyQueue {
			next := q.hook.Unlink()
			q.gatherSends()
			q.queued.Leave()
			return next
		})},
		"queued.Leave is called before the link is read": {gather: gather(func(q *Queue) *readyQueue {
			q.queued.Leave()
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"queued.Leave is not called": {gather: gather(func(q *Queue) *readyQueue {
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"the queue is on the ready list before the request is on its stack": {submit: func(q *Queue, i uint32) {
			q.submit(NoWakeup)
			q.sendStack.Push(i)
		}},
		"a queue on the ready list is pushed again": {submit: func(q *Queue, i uint32) {
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

// Rule: the model of ready_mixed_model_test.go finds each of these mistakes. The name of each case
// describes its mistake.
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
		"the holder's request is posted before an earlier request of its goroutine": {
			adds(func(q *Queue, i uint32) { q.join(i, i, 1) }), mix{submitters: 1, lone: "qw"},
		},
		"the holder's request is posted in a second list of its queue": {
			own(func(q *Queue) { q.gatherSends() }), mix{submitters: 2, lone: "w"},
		},
		"receives of PostRecvLater are not posted with the holder's request": {
			own(func(q *Queue) { q.list() }), mix{lone: "lw"},
		},
		"the holder's request is not posted in its pass": {own(func(*Queue) {}), mix{lone: "w"}},
		"queued.Leave is called after one of the two stacks is taken": {gather(func(q *Queue) {
			q.gatherRecvs()
			q.queued.Leave()
			q.gatherSends()
		}), mix{submitters: 1, receivers: 1}},
		"a sink's request is posted before an earlier request of the sink": {follows(func(q *Queue, i uint32) {
			q.join(i, i, 1)
			q.ready()
		}), mix{submitters: 1, sink: "sf"}},
		"a sink's request does not put its queue on the ready list": {follows(func(q *Queue, i uint32) { q.add(i) }), mix{submitters: 1, sink: "f"}},
		"requests of the stack are posted before older requests of the backlog": {gather(func(q *Queue) {
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
