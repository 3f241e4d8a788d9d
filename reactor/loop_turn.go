package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// work is the reactor as the token and waiting goroutines have it: what they call no user
// may.
type work Reactor

var (
	_ turn.Work      = (*work)(nil)
	_ futures.Driver = (*work)(nil)
)

// Turn implements turn.Work.
func (w *work) Turn(arm bool) bool { return (*Reactor)(w).makeTurn(arm) }

// Pending implements turn.Work.
func (w *work) Pending() bool {
	return !w.ready.Empty() || !w.tasks.Empty() || !w.calls.Empty() || w.cfg.Stepped && !w.callbacks.Empty()
}

// Outstanding implements turn.Work.
func (w *work) Outstanding() bool { return w.outstanding > 0 || len(w.keeping) > 0 }

// Errands implements turn.Work.
func (w *work) Errands() bool { return (*Reactor)(w).hasErrands() }

// Run implements turn.Work.
func (w *work) Run() (after func()) { return (*Reactor)(w).runErrands() }

// Deadline implements turn.Work.
func (w *work) Deadline() time.Time { return w.timers.next() }

// Drive implements futures.Driver: a goroutine that waits runs the reactor if nobody else
// does.
func (w *work) Drive(done <-chan struct{}, f *futures.Waiter) error {
	w.tok.Drive(done, turn.Waiter(f))
	return nil
}

// makeTurn is one turn: gather, post, arm, poll, dispatch; then what has ended is
// delivered. Tasks run before it, because they may make one themselves (Flush,
// Admit).
func (r *Reactor) makeTurn(arm bool) bool {
	r.inTurn = true
	did := !r.tasks.Empty() && r.runTasks()
	r.stats.Turns++
	r.inTurn = true // also if a task has made a turn
	did = r.turnOver(arm) || did
	r.inTurn = false
	if len(r.graves) > 0 {
		r.sweep()
	}
	if r.patrol.state == patrolNapping && r.outstanding > 0 {
		r.patrol.wake(r)
	}
	r.vain = !did
	r.deliver()
	return did
}

func (r *Reactor) turnOver(arm bool) bool {
	t := &r.turn // emptied without being cleared: what it refers to lives with the reactor or its queues
	t.Sends, t.Recvs, t.Arms = t.Sends[:0], t.Recvs[:0], t.Arms[:0]
	alone := r.own != nil
	did := r.gather(arm)
	if arm {
		r.wantArmed(&r.sendCQ, r.outstanding > 0)
		r.wantArmed(&r.recvCQ, r.live > 0)
	}
	posts := len(t.Sends) + len(t.Recvs) + len(t.Arms)
	if arm && posts == 0 && r.still() {
		return did
	}
	if t.Polls = r.polls; r.live+len(r.graves) == 0 {
		t.Polls = nil // there can be nothing
	}
	if posts+len(t.Polls) == 0 {
		return did
	}
	err := r.crossing(posts, alone)
	r.settlePosts(err)
	if err != nil { // the device is gone: nothing was polled, nothing will be
		r.die(&r.sendCQ, err)
		r.die(&r.recvCQ, err)
		return did
	}
	for i := range r.turn.Arms {
		a := &r.turn.Arms[i]
		if a.Errno != 0 { // it would never wake us
			r.die(r.stateOf(a.CQ), &verbs.OpError{Op: "ibv_req_notify_cq", Object: a.CQ.String(), Errno: a.Errno})
			continue
		}
		r.stats.Arms++
		r.stateOf(a.CQ).armed = true
	}
	for i := range r.turn.Polls {
		did = r.polled(&r.turn.Polls[i]) || did
	}
	return did
}

// A spinning turn polls some more times while it is in the device. No request can be
// posted meanwhile: so it is a slice of about sliceTime, and shorter
// where the device is slow. Two looks at the clock take 0.1 µs, and far more where the
// clock is no register but a device (HPET, an emulated machine): so when the longest slice
// was in time the next unlookedSlices are taken to be.
const (
	sliceRounds    = 32
	sliceTime      = 5 * time.Microsecond
	unlookedSlices = 15
)

// crossing is the turn of the device. One that has nothing to post, after one that found
// nothing, is a slice of spinning; so is that of a goroutine which posts a single
// request and waits for it.
func (r *Reactor) crossing(posts int, alone bool) error {
	if r.slice == 0 || posts > 1 || posts == 1 && !alone || posts == 0 && !r.vain {
		return r.ctx.Turn(&r.turn)
	}
	var began time.Time
	look := r.unlooked == 0
	if look {
		began = time.Now()
	}
	r.turn.Spin = r.slice
	err := r.ctx.Turn(&r.turn)
	r.turn.Spin = 0
	switch {
	case !look:
		r.unlooked--
	case time.Since(began) <= sliceTime+r.glance:
		// The machine may have taken the processor away: so it grows again.
		if r.slice = min(r.slice+1, sliceRounds); r.slice == sliceRounds {
			r.unlooked = unlookedSlices
		}
	case r.slice == 1:
		r.unlooked = unlookedSlices
	default:
		r.slice /= 2
	}
	return err
}

func (r *Reactor) polled(p *verbs.PollGroup) bool {
	s := r.stateOf(p.CQ)
	s.expect(p.N, len(s.wc))
	r.stats.Polls.note(p.N)
	if p.N > 0 {
		if r.policy != PolicyEconomy && !s.armed && s == &r.recvCQ {
			r.spared.Add(1)
		}
		r.stats.Polled += uint64(p.N)
		r.stats.MaxPoll = max(r.stats.MaxPoll, uint64(p.N))
		r.dispatch(s.wc[:p.N])
	}
	if p.N < len(s.wc) {
		s.emptyAt = r.stats.Turns
	}
	if p.Errno != 0 {
		r.die(s, fmt.Errorf("%w: %w", ErrOverrun, &verbs.OpError{Op: "ibv_poll_cq", Object: p.CQ.String(), Errno: p.Errno}))
	}
	return p.N > 0
}

// Flush posts now what is submitted. Holder only, and not from a sink.
func (r *Reactor) Flush() {
	r.asked = true
	r.makeTurn(false)
}

// Drain turns until all that was in the completion queues is delivered. Others
// may complete more meanwhile, so that they are never found empty: there was no
// more than they hold. Holder only, and not from a sink.
func (r *Reactor) Drain() {
	from := r.stats.Turns
	for left := max(r.sendCQ.entries, r.recvCQ.entries); left > 0 && r.live+len(r.graves) > 0; left -= r.cfg.PollBatch {
		r.makeTurn(false)
		if r.sendCQ.emptySince(from) && r.recvCQ.emptySince(from) {
			return
		}
	}
}

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

// still tells whether a turn that posts and arms nothing would find nothing, or only
// what has an event on its way: so the holder who leaves, having armed all there is,
// need not cross into the device once more: on the null device a synchronous operation
// cost 466 ns more than the loop in C with that, and 315 without.
func (r *Reactor) still() bool {
	return r.outstanding == 0 && len(r.graves) == 0 && (r.recvCQ.dead || r.recvCQ.silent && !r.recvCQ.owed)
}

// setPolls makes the polls of a turn: of the queues that are alive.
func (r *Reactor) setPolls() {
	r.polls = nil // a new one: a turn may be looking at the old
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		if !s.dead {
			r.polls = append(r.polls, verbs.PollGroup{CQ: s.cq, WC: s.wc})
		}
	}
}

// die fails every queue: a completion queue gives no completions any more.
// Their operations end when their owners, who are told, release them.
func (r *Reactor) die(s *cqState, cause error) {
	if s.dead {
		return
	}
	s.dead, s.why = true, cause
	r.setPolls()
	for _, q := range r.queues {
		if q != nil {
			q.broken(cause)
		}
	}
}
