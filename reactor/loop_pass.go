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

// Pass implements turn.Work.
func (w *work) Pass(arm bool) bool { return (*Reactor)(w).pass(arm) }

// Pending implements turn.Work.
func (w *work) Pending() bool {
	return !w.ready.Empty() || !w.tasks.Empty() || !w.calls.Empty() || w.cfg.Stepped && !w.callbacks.Empty()
}

// Outstanding implements turn.Work.
func (w *work) Outstanding() bool { return w.outstanding > 0 || len(w.delayed) > 0 }

// NeedsLoop implements turn.Work.
func (w *work) NeedsLoop() bool { return (*Reactor)(w).needsLoop() }

// RunLoopTasks implements turn.Work.
func (w *work) RunLoopTasks() (after func()) { return (*Reactor)(w).runLoopTasks() }

// Deadline implements turn.Work.
func (w *work) Deadline() time.Time { return w.timers.next() }

// Drive implements futures.Driver: a goroutine that waits runs the reactor if nobody else
// does.
func (w *work) Drive(done <-chan struct{}, f *futures.Waiter) error {
	w.tok.Drive(done, turn.Waiter(f))
	return nil
}

// pass is one turn: gather, post, arm, poll, dispatch; then what has ended is
// delivered. Tasks run before it, because they may make one themselves (Flush,
// Admit).
func (r *Reactor) pass(arm bool) bool {
	r.inPass = true
	did := !r.tasks.Empty() && r.runTasks()
	r.stats.Passes++
	r.inPass = true // also if a task has made a turn
	did = r.postAndPoll(arm) || did
	r.inPass = false
	if len(r.quarantined) > 0 {
		r.reclaimAll()
	}
	if r.watchdog.state == watchdogIdle && r.outstanding > 0 {
		r.watchdog.wake(r)
	}
	r.idlePass = !did
	r.deliver()
	return did
}

func (r *Reactor) postAndPoll(arm bool) bool {
	t := &r.batch // emptied without being cleared: what it refers to lives with the reactor or its queues
	t.Sends, t.Recvs, t.Arms = t.Sends[:0], t.Recvs[:0], t.Arms[:0]
	alone := r.ownBacklog != nil
	did := r.gather(arm)
	if arm {
		r.wantArmed(&r.sendCQ, r.outstanding > 0)
		r.wantArmed(&r.recvCQ, r.live > 0)
	}
	posts := len(t.Sends) + len(t.Recvs) + len(t.Arms)
	if arm && posts == 0 && r.nothingToFind() {
		return did
	}
	if t.Polls = r.polls; r.live+len(r.quarantined) == 0 {
		t.Polls = nil // there can be nothing
	}
	if posts+len(t.Polls) == 0 {
		return did
	}
	err := r.execute(posts, alone)
	r.settlePosts(err)
	if err != nil { // the device is gone: nothing was polled, nothing will be
		r.failCQ(&r.sendCQ, err)
		r.failCQ(&r.recvCQ, err)
		return did
	}
	for i := range r.batch.Arms {
		a := &r.batch.Arms[i]
		if a.Errno != 0 { // it would never wake us
			r.failCQ(r.stateOf(a.CQ), &verbs.OpError{Op: "ibv_req_notify_cq", Object: a.CQ.String(), Errno: a.Errno})
			continue
		}
		r.stats.Arms++
		r.stateOf(a.CQ).armed = true
	}
	for i := range r.batch.Polls {
		did = r.polled(&r.batch.Polls[i]) || did
	}
	return did
}

// A spinning turn polls some more times while it is in the device. No request can be
// posted meanwhile: so it is a slice of about sliceTime, and shorter
// where the device is slow. Two looks at the clock take 0.1 µs, and far more where the
// clock is no register but a device (HPET, an emulated machine): so when the longest slice
// was in time the next maxUntimedSlices are taken to be.
const (
	maxSlicePolls    = 32
	sliceTime        = 5 * time.Microsecond
	maxUntimedSlices = 15
)

// execute is the turn of the device. One that has nothing to post, after one that found
// nothing, is a slice of spinning; so is that of a goroutine which posts a single
// request and waits for it.
func (r *Reactor) execute(posts int, alone bool) error {
	if r.slice == 0 || posts > 1 || posts == 1 && !alone || posts == 0 && !r.idlePass {
		return r.ctx.Execute(&r.batch)
	}
	var began time.Time
	look := r.untimedSlices == 0
	if look {
		began = time.Now()
	}
	r.batch.Spin = r.slice
	err := r.ctx.Execute(&r.batch)
	r.batch.Spin = 0
	switch {
	case !look:
		r.untimedSlices--
	case time.Since(began) <= sliceTime+r.clockCost:
		// The machine may have taken the processor away: so it grows again.
		if r.slice = min(r.slice+1, maxSlicePolls); r.slice == maxSlicePolls {
			r.untimedSlices = maxUntimedSlices
		}
	case r.slice == 1:
		r.untimedSlices = maxUntimedSlices
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
			r.savedEvents.Add(1)
		}
		r.stats.Polled += uint64(p.N)
		r.stats.MaxPoll = max(r.stats.MaxPoll, uint64(p.N))
		r.dispatch(s.wc[:p.N])
	}
	if p.N < len(s.wc) {
		s.emptyAt = r.stats.Passes
	}
	if p.Errno != 0 {
		r.failCQ(s, fmt.Errorf("%w: %w", ErrOverrun, &verbs.OpError{Op: "ibv_poll_cq", Object: p.CQ.String(), Errno: p.Errno}))
	}
	return p.N > 0
}

// Flush posts now what is submitted. Holder only, and not from a sink.
func (r *Reactor) Flush() {
	r.flushAsked = true
	r.pass(false)
}

// Drain turns until all that was in the completion queues is delivered. Others
// may complete more meanwhile, so that they are never found empty: there was no
// more than they hold. Holder only, and not from a sink.
func (r *Reactor) Drain() {
	from := r.stats.Passes
	for left := max(r.sendCQ.entries, r.recvCQ.entries); left > 0 && r.live+len(r.quarantined) > 0; left -= r.cfg.PollBatch {
		r.pass(false)
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
		r.batch.Arms = append(r.batch.Arms, verbs.ArmGroup{CQ: s.cq})
	}
}

// nothingToFind tells whether a turn that posts and arms nothing would find nothing, or only
// what has an event on its way: so the holder who leaves, having armed all there is,
// need not cross into the device once more: on the null device a synchronous operation
// cost 466 ns more than the loop in C with that, and 315 without.
func (r *Reactor) nothingToFind() bool {
	return r.outstanding == 0 && len(r.quarantined) == 0 && (r.recvCQ.dead || r.recvCQ.armedEmpty && !r.recvCQ.eventDue)
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

// failCQ fails every queue: a completion queue gives no completions any more.
// Their operations end when their owners, who are told, release them.
func (r *Reactor) failCQ(s *cqState, cause error) {
	if s.dead {
		return
	}
	s.dead, s.why = true, cause
	r.setPolls()
	for _, q := range r.queues {
		if q != nil {
			q.breakWith(cause)
		}
	}
}
