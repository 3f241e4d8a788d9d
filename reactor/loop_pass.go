package reactor

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor/turn"
	"github.com/verbena-rdma/verbena/verbs"
)

// work is a Reactor with the methods that the token (turn.Token) and waiting goroutines
// call. Reactor itself does not have these methods, because the user must not call them.
type work Reactor

var (
	_ turn.Work      = (*work)(nil)
	_ futures.Driver = (*work)(nil)
)

// Pass implements turn.Work.
func (w *work) Pass(arm bool) bool { return (*Reactor)(w).pass(arm) }

// receivingWork is the work of a reactor whose device receives packets on the goroutines that poll
// its completion queues (verbs.PollReceiver). It is a separate type, because a check for such a device
// in every pass would add 20 ns to the 340 ns that a synchronous operation takes on the null device
// (verbs/ibv/nulldev).
type receivingWork struct{ *work }

// Pass implements turn.Work.
func (w receivingWork) Pass(arm bool) bool {
	did := w.work.Pass(arm)
	if arm && !did {
		w.receiver.Rest() // the holder is about to give up the turn, and perhaps no goroutine polls after that
	}
	return did
}

// Armed implements turn.Work.
func (w *work) Armed() bool {
	if len(w.quarantined) > 0 || len(w.delayed) > 0 { // a pass that arms reclaims and posts them
		return false
	}
	return w.live == 0 || (w.outstanding == 0 || w.allArmed(w.sendCQs)) && w.allArmed(w.recvCQs)
}

// allArmed reports whether each queue is empty, as far as the last pass could see, and armed: its next completion raises
// an event, or an event that is due (eventDue) covers it.
func (w *work) allArmed(all []*cqState) bool {
	for _, s := range all {
		if !s.dead && (!s.armedEmpty || s.eventDue && s.emptyAt != w.stats.Passes) {
			return false
		}
	}
	return true
}

// Armed implements turn.Work. A device that receives must poll and rest first: see Pass.
func (w receivingWork) Armed() bool { return !w.receiver.Receives() && w.work.Armed() }

// Quiet implements turn.Work.
func (w *work) Quiet() bool { return (*Reactor)(w).onlyEvents() && !w.Outstanding() }

// Pending implements turn.Work.
func (w *work) Pending() bool {
	return w.eventArrived.Load() || !w.ready.Empty() || !w.tasks.Empty() || !w.calls.Empty() || w.cfg.Stepped && !w.callbacks.Empty()
}

// Outstanding implements turn.Work.
func (w *work) Outstanding() bool { return w.outstanding > 0 || len(w.delayed) > 0 }

// NeedsLoop implements turn.Work.
func (w *work) NeedsLoop() bool { return (*Reactor)(w).needsLoop() }

// RunLoopTasks implements turn.Work.
func (w *work) RunLoopTasks() (after func()) { return (*Reactor)(w).runLoopTasks() }

// Deadline implements turn.Work.
func (w *work) Deadline() time.Time { return w.timers.next() }

// Drive implements futures.Driver. The calling goroutine waits for f. If the turn is free, the
// goroutine takes it and runs passes; otherwise it parks.
func (w *work) Drive(done <-chan struct{}, f *futures.Waiter) error {
	w.tok.Drive(done, turn.Waiter(f))
	return nil
}

// pass runs one pass: events, Tasks, gather, post, arm, poll, dispatch, deliver. The result is
// false if there was nothing to do. The Tasks (see Reactor.Schedule) come first, because a Task may run
// a whole pass itself (Flush, Admit). If arm is set, the pass arms each completion queue that can get
// completions. It arms before it polls, so that a completion that the poll does not find raises an
// event. Only the holder calls pass.
func (r *Reactor) pass(arm bool) bool {
	r.inPass = true
	if r.eventArrived.Load() {
		r.eventArrived.Store(false) // before the events are taken: a later event sets it again
		r.takeChannelEvents()
	}
	did := !r.tasks.Empty() && r.runTasks()
	r.stats.Passes++
	r.inPass = true // set again, because a task may have run a pass, which clears inPass
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
	t := &r.batch // its old entries are not cleared, because they refer only to objects of the reactor and its queues
	t.Sends, t.Recvs, t.Arms = t.Sends[:0], t.Recvs[:0], t.Arms[:0]
	alone := r.ownBacklog != nil
	did := r.gather(arm)
	if arm {
		for _, s := range r.sendCQs {
			r.wantArmed(s, r.outstanding > 0)
		}
	}
	for _, s := range r.recvCQs {
		if arm || !s.armed && r.onlyEvents() { // early: see onlyEvents
			r.wantArmed(s, r.live > 0)
		}
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
	polled := r.polled
	r.settlePosts(err)
	if err != nil { // the device is gone: this call polled no completion, and no later call will
		for _, s := range r.cqs {
			r.failCQ(s, err)
		}
		return did
	}
	for i := range r.batch.Arms {
		a := &r.batch.Arms[i]
		if a.Errno != 0 { // without the arming, the completion queue would never wake the loop
			r.failCQ(r.stateOf(a.CQ), &verbs.OpError{Op: "ibv_req_notify_cq", Object: a.CQ.String(), Errno: a.Errno})
			continue
		}
		r.stats.Arms++
		r.stateOf(a.CQ).armed = true
	}
	for i := range r.batch.Polls {
		did = r.take(polled[i], &r.batch.Polls[i]) || did
	}
	return did
}

// A slice is a call of Execute that repeats its polls until they find a completion, but at most
// Reactor.slice times (IOBatch.Spin). A pass that spins runs one slice. No request can be posted
// during a slice, so a slice must be short. The reactor adapts Reactor.slice, so that a slice takes
// about sliceTime.
//
// To time a slice, the reactor reads the clock twice, which takes 0.1 µs. The readings take far longer
// if the clock is a device (HPET, an emulated machine) and not a register. So in two cases the next
// maxUntimedSlices slices are not timed: Reactor.slice has reached maxSlicePolls, or a slice was too
// slow although Reactor.slice was 1.
const (
	maxSlicePolls    = 32
	sliceTime        = 5 * time.Microsecond
	maxUntimedSlices = 15
)

// execute() passes the batch to the device. The argument posts is the number of lists to post plus
// the number of completion queues to arm. If alone is set, the batch contains the request of a
// TransferWait, unless that waits behind a binding (untilBind). If Reactor.slice is not 0, the call is
// a slice in two cases: posts is 0 and the previous pass found nothing, or posts is 1 and alone is set.
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
		// The slice was fast enough, so the next slice may repeat its polls one more time.
		// (Preemption of the thread makes a slice slow, too, and so halves Reactor.slice. After that,
		// Reactor.slice grows back here.)
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

// take handles the result p of a poll of s, and reports whether there were completions, or may be: then the loop
// does not sleep before it has polled again.
func (r *Reactor) take(s *cqState, p *verbs.PollGroup) bool {
	if p.Errno == syscall.EBUSY {
		return true
	}
	s.expect(p.N, len(s.wc))
	r.stats.Polls.note(p.N)
	if p.N > 0 {
		if r.policy != PolicyEconomy && !s.armed && s.receives {
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

// Flush runs a pass that holds no sends back (Config.FlushDelay). Only the holder may call Flush, and
// a sink must not.
func (r *Reactor) Flush() {
	r.flushAsked = true
	r.pass(false)
}

// Drain runs passes until all completion queues were polled empty. So it delivers every completion
// that was in a completion queue at the call. New completions may keep coming, so Drain runs at most
// as many passes as it takes to poll a full completion queue. Only the holder may call Drain, and a
// sink must not.
func (r *Reactor) Drain() {
	from := r.stats.Passes
	left := 0
	for _, s := range r.cqs {
		left = max(left, s.entries)
	}
	for ; left > 0 && r.live+len(r.quarantined) > 0; left -= r.cfg.PollBatch {
		r.pass(false)
		if !slices.ContainsFunc(r.cqs, func(s *cqState) bool { return !s.emptySince(from) }) {
			return
		}
	}
}

func (r *Reactor) stateOf(cq verbs.CQ) *cqState {
	for _, s := range r.cqs {
		if s.cq == cq {
			return s
		}
	}
	panic("reactor: " + cq.String() + " is none of its completion queues")
}

func (r *Reactor) wantArmed(s *cqState, needed bool) {
	if needed && !s.armed && !s.dead {
		r.batch.Arms = append(r.batch.Arms, verbs.ArmGroup{CQ: s.cq})
	}
}

// onlyEvents reports whether messages come only with events that call arrived: the device announces its
// events, and receives no packets of other processes. Then a holder that waits for messages does not spin
// (work.Quiet). Each of its passes arms the completion queue of receives, which costs little on such a
// device, so that the last pass finds nothing to arm and nothing to poll (nothingToFind).
func (r *Reactor) onlyEvents() bool {
	return r.announces && (r.receiver == nil || !r.receiver.Receives())
}

// nothingToFind reports whether an arming pass may skip its poll: no send is outstanding, no queue
// is quarantined, and the next completion of a receive raises an event. So a holder that has armed
// everything gives up the turn without another call of the device. This was measured on the null
// device (verbs/ibv/nulldev): a synchronous operation took 315 ns more than in a loop in C
// (benchmarks/internal/overhead). With the additional call it took 466 ns more than in C.
func (r *Reactor) nothingToFind() bool {
	if r.outstanding > 0 || len(r.quarantined) > 0 {
		return false
	}
	for _, s := range r.recvCQs {
		if !s.dead && (!s.armedEmpty || s.eventDue) {
			return false
		}
	}
	return true
}

// setPolls sets r.polls, the polls of each pass: one poll for each completion queue that is not dead; and
// r.polled, the states of these completion queues.
func (r *Reactor) setPolls() {
	r.polls, r.polled = nil, nil // new slices, because a pass may be reading the old ones
	for _, s := range r.cqs {
		if !s.dead {
			r.polls, r.polled = append(r.polls, verbs.PollGroup{CQ: s.cq, WC: s.wc}), append(r.polled, s)
		}
	}
}

// failCQ marks a completion queue dead, fails every Queue and notifies the owners of the Queues.
// Outstanding operations end when the owners release their Queues.
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
