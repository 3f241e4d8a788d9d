//go:build verbena_model

package reactor

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// The model finds what each step of those defends against.
func TestReadyModelFindsMistakesOfAllWays(t *testing.T) {
	gather := func(take func(*Queue)) mixedWays {
		w := rightMixed
		w.gather = func(r *Reactor) {
			for q := r.ready.TakeAll(); q != nil; {
				next := q.hook.Unlink()
				take(q)
				q = next
			}
		}
		w.lone = (*Reactor).gatherLone
		return w
	}
	lone := func(before func(*Reactor, *Queue) bool) mixedWays {
		w := rightMixed
		w.lone = func(r *Reactor) {
			if before(r, r.lone) {
				r.gatherLone()
				return
			}
			q, i := r.lone, r.loneSlot
			r.lone = nil
			q.order.push(i)
			r.turn.Sends = append(r.turn.Sends, verbs.SendGroup{Count: 1})
		}
		return w
	}
	follows := func(how func(*Queue, uint32)) mixedWays {
		w := rightMixed
		w.follow = how
		return w
	}
	inTurn := func(r *Reactor, q *Queue) bool { return slices.Contains(r.sendOwners, q) }
	quiet := rightMixed
	quiet.lone = func(r *Reactor) {
		if inTurn(r, r.lone) {
			r.lone.sendStack.Push(r.loneSlot)
			r.lone = nil
			return
		}
		r.gatherLone()
	}
	for name, c := range map[string]struct {
		mixedWays
		mix
	}{
		"a lone request goes past what its goroutine submitted": {
			lone(func(r *Reactor, q *Queue) bool { return inTurn(r, q) || !q.recvStack.Empty() }), mix{submitters: 1, lone: "qw"},
		},
		"a lone request is posted beside the list of its queue": {
			lone(func(r *Reactor, q *Queue) bool { return !inTurn(r, q) && !q.noSends() }), mix{submitters: 1, lone: "w"},
		},
		"a lone request leaves the receives": {
			lone(func(r *Reactor, q *Queue) bool { return inTurn(r, q) || !q.noSends() }), mix{submitters: 1, lone: "lw"},
		},
		"a lone request that must wait lists nothing": {quiet, mix{submitters: 1, lone: "w"}},
		"the queue is left between its two stacks": {gather(func(q *Queue) {
			q.gatherRecvs()
			q.queued.Leave()
			q.gatherSends()
		}), mix{submitters: 1, receivers: 1}},
		"a sink's request goes before what the sink submitted": {follows(func(q *Queue, i uint32) {
			q.direct = chain{i, i, 1}
			q.ready()
		}), mix{submitters: 1, sink: "sf"}},
		"a sink's request is not listed": {follows(func(q *Queue, i uint32) {
			q.direct = chain{i, i, 1}
		}), mix{submitters: 1, sink: "f"}},
		"the stack is taken before what sinks started": {gather(func(q *Queue) {
			q.queued.Leave()
			if first, n := q.sendStack.TakeAll(); n > 0 {
				q.list(first, n)
				return
			}
			q.gatherSends()
		}), mix{submitters: 1, sink: "fs"}},
	} {
		states, err := ring.Explore(1_000_000, func() ring.World { return mixedWorld(c.mixedWays, c.mix) })
		if err == nil {
			t.Errorf("%s: not found in %d states", name, states)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
