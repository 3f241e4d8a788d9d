//go:build verbena_model

package reactor

import (
	"fmt"
	"os"
	"testing"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// readyWays are what a submitter does with a filled slot and a holder with what is ready.
// The model is shown wrong ones too.
type readyWays struct {
	submit func(*Queue, uint32)
	gather func(*Reactor)
}

var rightReady = readyWays{
	submit: func(q *Queue, i uint32) {
		q.sendStack.Push(i)
		ring.Forget(pushed + int(q.id)<<10 + int(i)) // submit does not know what Push saw
		q.submit(Quiet)
	},
	gather: func(r *Reactor) { r.gather(false) },
}

// pushed is above all else that is given to Forget here.
const pushed = 1 << 20

type idleQP struct{ verbs.QP }

// readyBed is as much of a reactor as submit and gather need.
func readyBed(queues, slots int) (*Reactor, []*Queue) {
	r := new(Reactor)
	r.tok = turn.New(nil, nil, turn.Config{CallerDriving: true}) // nobody sleeps
	qs := make([]*Queue, queues)
	for k := range qs {
		q := &Queue{r: r, id: uint32(k), qp: idleQP{}, sendStack: ring.NewIndexStack(slots), order: newFIFO(slots)}
		q.cfg.SignalEvery = 1
		q.tab = &table{slots: make([]slot, slots), bytes: make([]uint32, slots), sendWR: make([]verbs.SendWR, slots)}
		qs[k] = q
	}
	return r, qs
}

// readyWorld has submitters who submit one request to each queue in turn, some rounds
// long, and the holder, who takes a turn whenever a queue is on the ready list.
func readyWorld(w readyWays, queues, submitters, rounds int) ring.World {
	r, qs := readyBed(queues, submitters*rounds)
	next, total := make([]int, queues*submitters), 0 // round expected by queue and submitter
	world := ring.World{
		Shared: func(d *ring.Digest) {
			r.ready.Digest(d, qs)
			for _, q := range qs {
				q.queued.Digest(d)
				q.sendStack.Digest(d)
			}
		},
		Ghost: func(d *ring.Digest) {
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
		world.Actors = append(world.Actors, func() {
			for k := range rounds {
				for n, q := range qs {
					ring.Forget(k*queues + n)
					w.submit(q, uint32(s*rounds+k))
				}
			}
		})
	}
	world.Actors = append(world.Actors, func() {
		for total < queues*submitters*rounds {
			ring.Forget(total)
			ring.Await(func() bool { return !r.ready.Empty() })
			w.gather(r)
			r.turn.Sends, r.sendOwners = nil, nil
			for n, q := range qs {
				for ; q.order.len() > 0; total++ {
					i := int(q.order.pop())
					if s := i / rounds; i%rounds != next[n*submitters+s] {
						panic(fmt.Sprintf("queue %d posts request %d of submitter %d, want %d", n, i%rounds, s, next[n*submitters+s]))
					}
					next[n*submitters+i/rounds]++
				}
			}
		}
	})
	world.End = func() error {
		if want := queues * submitters * rounds; total != want {
			return fmt.Errorf("%d of %d requests are posted, and no queue is on the ready list", total, want)
		}
		return nil
	}
	return world
}

// Rule: a queue with something on its stack is on the ready list, or whoever put it there
// is about to list it, or the holder about to take it: everything submitted is posted
// without anybody submitting more, once, in the order of each submitter and queue.
func TestReadyModelEveryInterleaving(t *testing.T) {
	for _, c := range []struct {
		queues, submitters, rounds int
		large                      bool
	}{{1, 2, 1, false}, {1, 1, 3, false}, {2, 1, 1, false}, {1, 2, 2, true}, {2, 1, 2, true}} {
		if c.large && os.Getenv("VERBENA_MODEL") != "all" {
			continue
		}
		states, err := ring.Explore(5_000_000, func() ring.World { return readyWorld(rightReady, c.queues, c.submitters, c.rounds) })
		t.Logf("%+v: %d states", c, states)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The model finds what each step defends against.
func TestReadyModelFindsMistakes(t *testing.T) {
	gather := func(each func(*Queue) *Queue) func(*Reactor) {
		return func(r *Reactor) {
			for q := r.ready.TakeAll(); q != nil; {
				q = each(q)
			}
		}
	}
	for name, w := range map[string]readyWays{
		"the queue is left after its stack is taken": {gather: gather(func(q *Queue) *Queue {
			next := q.hook.Unlink()
			q.gatherSends()
			q.queued.Leave()
			return next
		})},
		"the queue is left before its link is read": {gather: gather(func(q *Queue) *Queue {
			q.queued.Leave()
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"the queue is never left": {gather: gather(func(q *Queue) *Queue {
			next := q.hook.Unlink()
			q.gatherSends()
			return next
		})},
		"the queue is listed before the request is on its stack": {submit: func(q *Queue, i uint32) {
			q.submit(Quiet)
			q.sendStack.Push(i)
		}},
		"a listed queue is listed again": {submit: func(q *Queue, i uint32) {
			q.sendStack.Push(i)
			q.queued.Enter()
			q.r.ready.Push(q)
		}},
	} {
		if w.submit == nil {
			w.submit = rightReady.submit
		}
		if w.gather == nil {
			w.gather = rightReady.gather
		}
		states, err := ring.Explore(1_000_000, func() ring.World { return readyWorld(w, 2, 1, 2) })
		if err == nil {
			t.Errorf("%s: not found in %d states", name, states)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
