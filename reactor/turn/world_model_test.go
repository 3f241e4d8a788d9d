//go:build verbena_model

package turn

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/model"
)

// op is an operation of the model. First it is submitted, then posted, then completed, then
// settled.
type op struct {
	caller int  // number of the caller that submitted the operation
	timed  bool // the operation is not posted; the pass that takes it sets a timer and settles the operation
	waiter *fakeWaiter
}

// fakeWorld is the Work and the Sleeper of a reactor. It is also the device, which completes
// operations at any time.
type fakeWorld struct {
	tok *Token
	model.World

	inbox   []*op // submitted operations
	lone    *op   // request of the lone caller that holds the turn; the next pass of this caller posts the request
	calls   int   // number of submitted functions, which only the loop runs
	posted  []*op // posted operations that have not completed
	cq      []*op // completed operations that are not settled
	armed   bool  // the next completion raises an event
	isArmed bool  // the reactor has armed, and has not taken an event since
	event   bool  // the channel is readable
	arrives bool  // events call Arrived, and the next pass takes them; the field event stays false
	passed  bool  // Wait and Poll leave an event to the next pass, which listens again; until then there is no other report
	deaf    bool  // Wait or Poll has left the event to a pass that has not come yet
	arrived bool  // no pass has taken an event that called Arrived, or that Wait or Poll has left to a pass
	fresh   bool  // Wait or Poll has reported the event, and the loop has not taken the event yet
	bell    bool  // a wake-up is pending
	closed  bool  // the sleeper is closed

	timer  bool // the timer is set; the model has only one deadline
	now    bool // the deadline has passed
	sooner bool // a loop task is pending: call Deadline again

	ran, toRun int // number of functions that the loop has run, and that it must run in all
	waiters    []*fakeWaiter
	timed      bool // there are timers in this scenario
	busy       bool // while a loop task is left, every pass finds work and no operation completes
	oneQueue   bool // the lone caller and the others submit to one queue
	slowQueue  bool // the lone caller has a queue of its own; its request completes after the earlier requests
	oneByOne   bool // a pass takes one completion at most
	full       bool // the last pass left completions
	deafTimer  bool // a mistake: an earlier deadline does not become a loop task
}

// Pass implements Work. Usually it is one step of the model. If it posts the request of a lone caller,
// it is two steps: the device may complete the request between posting and polling. Pass arms before
// it polls.
func (f *fakeWorld) Pass(arm bool) bool {
	did := false
	if f.arrived {
		f.arrived, f.event, f.deaf, f.isArmed = false, false, false, false
	}
	for _, o := range f.inbox {
		did = true
		if o.timed {
			f.timer, f.sooner = true, !f.deafTimer
			f.settle(o)
			continue
		}
		f.posted = append(f.posted, o)
	}
	f.inbox = nil
	if f.lone != nil {
		f.postLone(did)
		did = true
	}
	if arm && len(f.posted)+len(f.cq) > 0 && !f.isArmed {
		f.armed, f.isArmed = true, true
	}
	n := len(f.cq)
	if f.oneByOne {
		n = min(n, 1)
	}
	for _, o := range f.cq[:n] {
		did = true
		f.settle(o)
	}
	f.cq = f.cq[n:]
	f.full = len(f.cq) > 0
	if f.busy && (f.tok.word.Load()&loopWants != 0 || f.NeedsLoop()) {
		did = true
	}
	model.Learn(uint64(ifTrue(did)))
	return did
}

func (f *fakeWorld) settle(o *op) {
	if o.waiter.settled {
		model.Failf("an operation was settled twice")
	}
	o.waiter.settled = true
}

func (f *fakeWorld) Pending() bool     { return len(f.inbox)+f.calls > 0 || f.arrived }
func (f *fakeWorld) Armed() bool       { return !f.full && (f.isArmed || !f.Outstanding()) }
func (f *fakeWorld) Quiet() bool       { return f.arrives }
func (f *fakeWorld) Outstanding() bool { return len(f.posted)+len(f.cq) > 0 }
func (f *fakeWorld) NeedsLoop() bool {
	return f.calls > 0 || f.fresh || f.sooner || f.timer && f.now
}

func (f *fakeWorld) Deadline() time.Time {
	model.Mark("deadline", 0) // the loop sleeps next; the values that it has read have no influence
	if f.timed {
		model.Yield("deadline")
	}
	if f.timer {
		return time.Unix(1, 0)
	}
	return time.Time{}
}

func (f *fakeWorld) RunLoopTasks() func() {
	if f.fresh {
		f.fresh, f.event, f.isArmed = false, false, false
	}
	f.sooner = false
	if f.timer && f.now {
		f.timer = false
	}
	if f.calls == 0 {
		return nil
	}
	f.ran += f.calls
	f.calls = 0
	return func() {}
}

func (f *fakeWorld) Wake() { f.bell = true }

func (f *fakeWorld) Wait(deadline time.Time) (wake WakeReason) {
	timed := !deadline.IsZero()
	model.Mark("sleep", ifTrue(timed))
	model.Block("sleep", func() bool { return f.bell || f.event && !f.deaf || f.closed || timed && f.now })
	f.bell = false
	wake = f.report()
	if timed && f.now {
		wake |= WakeTimer
	}
	if f.closed {
		wake |= WakeClosed
	}
	model.Mark("woken", int(wake))
	return wake
}

// report reports an event that only the loop handles, and leaves any other to the next pass.
func (f *fakeWorld) report() WakeReason {
	switch {
	case !f.event || f.deaf:
		return 0
	case f.passed:
		f.arrived, f.deaf = true, true
		return 0
	}
	f.fresh = true
	return WakeEvent
}

// Poll implements Sleeper. It is a step of the model. An event that Poll finds becomes a loop task.
func (f *fakeWorld) Poll() (wake WakeReason) {
	model.Yield("look")
	if !f.fresh {
		wake = f.report()
	}
	if f.closed {
		wake |= WakeClosed
	}
	model.Learn(uint64(wake))
	return wake
}

// stirs reports whether a goroutine that spins forever would find something to do. The
// goroutine is the argument driver, or the loop if driver is nil.
func (f *fakeWorld) stirs(driver Parker) bool {
	work := len(f.inbox)+len(f.cq) > 0 || f.arrived || f.NeedsLoop()
	if w, ok := driver.(*fakeWaiter); ok {
		return work || w.settled || w.cancelled || f.tok.word.Load()&anyWants != 0
	}
	if f.event && !f.fresh && !f.deaf || f.closed {
		return true
	}
	if f.tok.word.Load() == spinning {
		return work
	}
	return f.tok.word.Load() >= held && f.NeedsLoop()
}

// device completes n operations, in order. It may complete each of them at any time.
func (f *fakeWorld) device(n int) {
	for i := range n {
		model.Mark("device", i)
		model.Block("complete", func() bool { return len(f.posted) > 0 && !(f.busy && (f.ran < f.toRun || f.timer)) })
		f.cq = append(f.cq, f.posted[0])
		f.posted = f.posted[1:]
		if !f.armed {
			continue
		}
		if f.armed = false; !f.arrives {
			f.event = true
			continue
		}
		f.arrived = true
		f.tok.Arrived()
	}
}

// reads returns the value that the step with this label reads. For a label without a
// case it returns 0: then the code itself calls model.Learn with the value, or the position of the
// actor shows the value.
func (f *fakeWorld) reads(label string) uint64 {
	word, yes := f.tok.word.Load(), false
	switch label {
	case "take", "park.recheck":
		yes = word < held
	case "watch.take", "take.brief", "want":
		return uint64(word)
	case "lend":
		yes = word == held|loopSpins
	case "leave.word":
		return uint64(word)
	case "submitted", "arrived", "ring", "release.retake":
		yes = word == asleep
	case "drop":
		yes = word == held
	case "release.pending":
		yes = f.Pending()
	}
	return uint64(ifTrue(yes))
}

func (f *fakeWorld) shared(d *model.Digest) {
	d.Add(uint64(f.tok.word.Load())<<8 | uint64(f.holders()))
	d.Add(uint64(f.calls)<<16 | uint64(f.ran)<<8 | uint64(len(f.tok.loopHandoff))<<1 | uint64(len(f.tok.callerHandoff)))
	d.Bits(f.armed, f.isArmed, f.event, f.fresh, f.bell, f.closed, f.timer, f.now, f.sooner, f.arrived, f.full, f.deaf)
	if f.lone != nil {
		d.Add(d.Place(f.lone.caller))
	}
	for _, queue := range [][]*op{f.inbox, f.posted, f.cq} {
		d.Add(uint64(len(queue)))
		for _, o := range queue {
			d.Add(d.Place(o.caller)<<1 | uint64(ifTrue(o.timed)))
		}
	}
	for i := range f.tok.slots {
		// The slot's count of uses is left out: a waiter only compares this count with the count
		// that it has remembered, and leaves if the two differ.
		s := &f.tok.slots[i]
		v := s.word.Load() & slotMask
		if v != slotFree {
			v |= d.Place(s.waiter.(*fakeWaiter).caller) << 8
		}
		d.Add(v)
	}
	for _, caller := range d.Owners() {
		for _, w := range f.waiters {
			if w.caller == caller && !w.left {
				d.Bits(w.submitted, w.parked, w.settled, w.offered, w.cancelled, w.given)
			}
		}
		d.Add(1)
	}
}

// holds reports whether the actor a is about to take a step that only the holder
// takes.
func holds(a *model.Actor) bool {
	switch label, place := a.At(); label {
	case "loop", "turn", "turn.arm", "fn", "drop", "offer.seat", "offer.offer", "offer.refused", "retaken", "lend", "drive.stirs", "lone.turn", "lone.poll":
		return true
	case "over":
		return place == "driving"
	}
	return false
}

// holders counts the actors that hold the turn, and the actors that were given the turn
// and have not run since.
func (f *fakeWorld) holders() int {
	n := len(f.tok.loopHandoff) + len(f.tok.callerHandoff)
	for _, w := range f.waiters {
		n += ifTrue(w.given)
	}
	for _, a := range f.Actors {
		n += ifTrue(holds(a))
	}
	return n
}

// check verifies that holders() is 1 if the token's word says that the turn is held, and
// 0 otherwise.
func (f *fakeWorld) check() error {
	if n, held := f.holders(), f.tok.word.Load() >= held; n != ifTrue(held) {
		return fmt.Errorf("%d hold the turn or are being given it, want %d: the token's word has held = %t", n, ifTrue(held), held)
	}
	return nil
}

// end is called when no actor can go on. It verifies that no work and no waiter is left.
func (f *fakeWorld) end(blocked []string) error {
	if len(f.inbox)+f.calls+len(f.posted)+len(f.cq) > 0 || f.arrived && !f.closed || f.lone != nil || f.timer || f.fresh && !f.closed || f.ran != f.toRun {
		return fmt.Errorf("lost wake-up: no actor can go on, and work is left; blocked: %v", blocked)
	}
	for _, b := range blocked {
		if strings.HasSuffix(b, "@cancel") {
			continue // the caller had returned before its wait was canceled
		}
		if b != "loop@sleep" && b != "loop@watch.stirs" || f.closed {
			return fmt.Errorf("stuck: no actor can go on, want only an idle loop to be blocked; blocked: %v", blocked)
		}
	}
	want := asleep
	if f.tok.cfg.SpinMode == SpinAlways {
		want = spinning
	}
	if w := f.tok.word.Load(); w != want && !f.closed {
		return fmt.Errorf("ended with word %d of the token, want %d", w, want)
	}
	return nil
}

func (f *fakeWorld) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "word=%d inbox=%d lone=%d calls=%d posted=%d cq=%d armed=%d/%d event=%d/%d bell=%d timer=%d/%d/%d", f.tok.word.Load(),
		len(f.inbox), ifTrue(f.lone != nil), f.calls, len(f.posted), len(f.cq), ifTrue(f.armed), ifTrue(f.isArmed), ifTrue(f.event), ifTrue(f.fresh),
		ifTrue(f.bell), ifTrue(f.timer), ifTrue(f.sooner), ifTrue(f.now))
	for _, w := range f.waiters {
		fmt.Fprintf(&b, " w%d%s", w.caller, w)
	}
	for i := range f.tok.slots {
		fmt.Fprintf(&b, " s%d", f.tok.slots[i].word.Load()&slotMask)
	}
	return b.String()
}

// fakeWaiter is a waiting goroutine.
type fakeWaiter struct {
	f         *fakeWorld
	caller    int
	submitted bool
	parked    bool
	settled   bool
	offered   bool
	done      chan struct{} // nil: the wait cannot be canceled
	cancelled bool
	given     bool // the offer was accepted, and the goroutine does not drive yet
	left      bool // Drive has returned
}

func (w *fakeWaiter) String() string {
	s := ""
	for i, b := range []bool{w.parked, w.settled, w.offered, w.cancelled, w.left} {
		if b {
			s += string("psocl"[i])
		}
	}
	return "(" + s + ")"
}

// Settled implements Parker. Usually it is a step of the model. It is no step in two cases, in
// which the result cannot change: w is settled, or the calling goroutine holds the turn, so that no
// other goroutine can settle w. A call by a driver also clears w.given, because the offer has
// arrived.
func (w *fakeWaiter) Settled() bool {
	if model.Place() == "driving" {
		w.given = false
	} else if !w.settled {
		model.Yield("settled")
	}
	model.Learn(uint64(ifTrue(w.settled)))
	return w.settled
}

func (w *fakeWaiter) Park(<-chan struct{}) (sig Signal) {
	model.Yield("park.enter")
	w.parked = true
	model.Block("park", func() bool { return w.settled || w.offered || w.cancelled })
	w.parked = false
	switch {
	case w.offered:
		w.offered = false
		sig = SignalTurn
	case w.settled:
		sig = SignalSettled
	default:
		sig = SignalCancelled
	}
	model.Learn(uint64(sig))
	return sig
}

func (w *fakeWaiter) Offer() bool {
	if w.left {
		model.Failf("the turn was offered to a waiter whose Drive had returned")
	}
	ok := w.parked && !w.offered && !w.settled
	if ok {
		w.offered, w.given = true, true
	}
	model.Learn(uint64(ifTrue(ok)))
	return ok
}

// permutations returns every order of the callers in which each position has a caller
// of the same kind as in the list kinds.
func permutations(kinds []string) (out [][]int) {
	var extend func(p []int)
	extend = func(p []int) {
		if len(p) == len(kinds) {
			out = append(out, slices.Clone(p))
			return
		}
		for i := range kinds {
			if !slices.Contains(p, i) && kinds[i] == kinds[len(p)] {
				extend(append(p, i))
			}
		}
	}
	extend(nil)
	return out
}
