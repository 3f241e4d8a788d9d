package reactor

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// work is the Reactor with methods for the token and for waiting goroutines. They are not methods
// of Reactor because the user must not call them.
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

// Drive implements futures.Driver: a waiting goroutine drives the reactor if the turn is free.
func (w *work) Drive(done <-chan struct{}, f *futures.Waiter) error {
	w.tok.Drive(done, turn.Waiter(f))
	return nil
}

// pass runs one pass: gather, post, arm, poll, dispatch, then deliver. It reports whether it did
// anything. Tasks run first, because they may run a pass themselves (Flush, Admit).
func (r *Reactor) pass(arm bool) bool {
	r.inPass = true
	did := !r.tasks.Empty() && r.runTasks()
	r.stats.Passes++
	r.inPass = true // again: a task may have run a pass
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
	t := &r.batch // truncated, not cleared: all it refers to belongs to the reactor or its queues
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
		t.Polls = nil // without queues there are no completions
	}
	if posts+len(t.Polls) == 0 {
		return did
	}
	err := r.execute(posts, alone)
	r.settlePosts(err)
	if err != nil { // the device is gone: no completion was polled, and none will be
		r.failCQ(&r.sendCQ, err)
		r.failCQ(&r.recvCQ, err)
		return did
	}
	for i := range r.batch.Arms {
		a := &r.batch.Arms[i]
		if a.Errno != 0 { // an unarmed completion queue would never wake the loop
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

// A slice is one call of the device that polls many times (IOBatch.Spin); a spinning pass makes
// one. No request can be posted meanwhile, so the number of polls adapts until a slice takes about
// sliceTime. Timing a slice reads the clock twice, which takes 0.1 µs, and far more if the clock
// is a device and not a register (HPET, an emulated machine). So after a timed slice of
// maxSlicePolls polls, or of a single one, the next maxUntimedSlices slices are not timed.
const (
	maxSlicePolls    = 32
	sliceTime        = 5 * time.Microsecond
	maxUntimedSlices = 15
)

// execute has the device carry out the batch. It makes the call a slice in two cases: this pass
// posts nothing and the previous pass found nothing, or this pass posts only the request of a
// goroutine that waits for it (alone).
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
		// The slice grows again: an earlier one may have been slow because its thread was preempted.
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

// Flush posts the submitted requests now, and holds none back. Holder only, and not from a sink.
func (r *Reactor) Flush() {
	r.flushAsked = true
	r.pass(false)
}

// Drain runs passes until every completion that was in the completion queues is delivered. New
// completions may keep a completion queue from being polled empty, so Drain also stops after as
// many polls as a full one needs. Holder only, and not from a sink.
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

// nothingToFind reports whether a poll is needless, because every completion that may come raises
// an event. A holder that has armed everything then leaves without another call of the device. On
// the null device a synchronous operation took 466 ns longer than the benchmark's loop in C with
// that call, and 315 ns longer without it.
func (r *Reactor) nothingToFind() bool {
	return r.outstanding == 0 && len(r.quarantined) == 0 && (r.recvCQ.dead || r.recvCQ.armedEmpty && !r.recvCQ.eventDue)
}

// setPolls makes the polls of a pass: one for each completion queue that is not dead.
func (r *Reactor) setPolls() {
	r.polls = nil // a new slice: a pass may be reading the old one
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		if !s.dead {
			r.polls = append(r.polls, verbs.PollGroup{CQ: s.cq, WC: s.wc})
		}
	}
}

// failCQ marks a completion queue dead and fails every Queue. It notifies the owners; outstanding
// operations end when the owners release their Queues.
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
