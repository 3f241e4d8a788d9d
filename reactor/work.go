package reactor

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Turn is one turn: gather, post, arm, poll, settle. It implements turn.Work.
func (r *Reactor) Turn(arm bool) bool {
	r.stats.Turns++
	r.turn.Reset()
	did := r.runTasks()
	did = r.gather() || did
	if arm {
		r.wantArmed(&r.sendCQ, r.outstanding > 0)
		r.wantArmed(&r.recvCQ, r.live > 0)
	}
	r.wantPolled(&r.sendCQ)
	r.wantPolled(&r.recvCQ)
	if len(r.turn.Sends)+len(r.turn.Recvs)+len(r.turn.Arms)+len(r.turn.Polls) == 0 {
		return did
	}
	err := r.ctx.Turn(&r.turn)
	polls, arms := r.turn.Polls, r.turn.Arms
	r.settlePosts(err)
	if err != nil {
		return did
	}
	for i := range arms {
		if arms[i].Errno == 0 {
			r.stats.Arms++
			r.stateOf(arms[i].CQ).armed = true
		}
	}
	for i := range polls {
		s := r.stateOf(polls[i].CQ)
		if polls[i].Errno != 0 {
			r.overrun(s)
			continue
		}
		if n := polls[i].N; n > 0 {
			did = true
			r.stats.Polled += uint64(n)
			r.stats.MaxPoll = max(r.stats.MaxPoll, uint64(n))
			r.dispatch(s.wc[:n])
		}
	}
	if len(r.graves) > 0 {
		r.sweep()
	}
	return did
}

// Flush posts now what is submitted. Holder only, and not from a sink.
func (r *Reactor) Flush() { r.Turn(false) }

func (r *Reactor) stateOf(cq verbs.CQ) *cqState {
	if cq == r.sendCQ.cq {
		return &r.sendCQ
	}
	return &r.recvCQ
}

func (r *Reactor) wantArmed(s *cqState, needed bool) {
	if needed && !s.armed && !s.dead {
		r.turn.Arms = append(r.turn.Arms, verbs.ArmGroup{CQ: s.cq})
	}
}

// wantPolled polls a queue unless nothing can be in it. The stale completions
// of queues released without a flush are dropped whenever they are met.
func (r *Reactor) wantPolled(s *cqState) {
	if r.live > 0 && !s.dead {
		r.turn.Polls = append(r.turn.Polls, verbs.PollGroup{CQ: s.cq, WC: s.wc})
	}
}

// overrun fails every queue: their completions are lost.
func (r *Reactor) overrun(s *cqState) {
	if s.dead {
		return
	}
	s.dead = true
	for _, q := range r.queues {
		if q != nil {
			q.Fail(ErrOverrun)
			if q.onFail != nil {
				fn := q.onFail
				q.onFail = nil
				fn(ErrOverrun)
			}
		}
	}
}

// Pending implements turn.Work.
func (r *Reactor) Pending() bool { return !r.ready.Empty() || !r.tasks.Empty() || r.errands.waiting() }

// Outstanding implements turn.Work.
func (r *Reactor) Outstanding() bool { return r.outstanding > 0 }

// Deadline implements turn.Work.
func (r *Reactor) Deadline() time.Time { return r.timers.next() }

func home(f *ring.FreeList) int {
	if f == nil {
		return 0
	}
	return f.Len()
}

// sweep gives the memory of released queues back once no submitter can touch
// it: all credits and receive slots are home. A submitter that comes later
// finds the queue's failure (see post).
func (r *Reactor) sweep() {
	kept := r.graves[:0]
	for _, q := range r.graves {
		if q.credits.Available() < q.cfg.SendDepth || home(q.recvFree) < q.cfg.RecvDepth || home(q.ctrlFree) < q.cfg.ControlDepth {
			kept = append(kept, q)
			continue
		}
		if err := q.mr.Close(); err != nil {
			kept = append(kept, q)
			continue
		}
		if err := q.tab.arena.Unmap(); err != nil {
			kept = append(kept, q)
		}
	}
	clear(r.graves[len(kept):])
	r.graves = kept
}
