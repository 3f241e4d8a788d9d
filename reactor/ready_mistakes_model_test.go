//go:build verbena_model

package reactor

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// The model finds what each step of those defends against.
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
			q := r.own
			r.own = nil
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
