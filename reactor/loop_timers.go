package reactor

import (
	"container/heap"
	"math"
	"sync/atomic"
	"time"
)

// Timer is a function that runs once, with the turn held, at a given time.
type Timer struct {
	at    time.Duration // since timers.base
	fn    func()
	index int // in the heap; -1 when not in it
	order uint64
}

// timers holds the timers of one reactor. Times are durations since base (the timers' clock), so
// that a step of the wall clock moves no timer. The heap is the holder's.
type timers struct {
	base  time.Time // epoch for all reactors on the machine's clock
	heap  timerHeap
	count uint64
	// first is the earliest deadline, or never if there is none. Written by the holder; read by the
	// loop before it sleeps and by needsLoop.
	first atomic.Int64
	// alarm fires a little after the deadline in first, and sets mayBeDue. So drivers read the
	// clock only when mayBeDue is set: a reading in every pass would cost a tenth of a synchronous
	// operation. A sleeping loop wakes at the deadline, before the alarm, and sets mayBeDue itself.
	// Then it sets the alarm anew, so the alarm causes no second wake-up. alarm is nil in a stepped
	// reactor and with Config.Now set.
	alarm *time.Timer
	// mayBeDue reports that the deadline in first may have passed. Set by alarm, and by a loop that
	// has slept until that deadline; cleared by setAlarm before it sets alarm. It publishes
	// nothing.
	mayBeDue atomic.Bool
}

// epoch is the base of the timers of all reactors on the machine's clock. So work at whole
// multiples of an interval is due at the same time in all of them, and costs the process one
// wake-up.
var epoch = time.Now()

// The alarm is set for first + min(left/alarmPart, alarmMost), where left is the time until first.
// So a short timer stays exact, and no timer is delayed by more than a loaded machine delays it
// anyway.
const (
	alarmPart = 16
	alarmMost = 10 * time.Millisecond
)

// never is a deadline that does not come: it is 292 years after base.
const never = math.MaxInt64

func (ts *timers) init(now time.Time, real bool) {
	ts.base = now
	ts.first.Store(never)
	if real {
		ts.base = epoch
		ts.alarm = time.AfterFunc(never, func() { ts.mayBeDue.Store(true) })
	}
}

// stop stops the alarm.
func (ts *timers) stop() {
	if ts.alarm != nil {
		ts.alarm.Stop()
	}
}

// After runs fn, with the turn held, when the time d has passed. Any goroutine may call it.
// StopTimer stops the timer. After allocates.
func (r *Reactor) After(d time.Duration, fn func()) *Timer {
	since := r.cfg.Now().Sub(r.timers.base)
	at := since + d
	if at < since && d > 0 { // overflow
		at = never
	}
	return r.runAt(at, fn)
}

// runAt runs fn at the time at on the timers' clock; else it is like After.
func (r *Reactor) runAt(at time.Duration, fn func()) *Timer {
	t := &Timer{at: at, fn: fn, index: -1}
	// Only the loop adds timers. So when the loop goes to sleep, it knows the earliest deadline.
	r.Defer(func() {
		if t.fn != nil && t.at != never {
			r.timers.add(t)
		}
	})
	return t
}

// nextTick returns the next whole multiple of d on the timers' clock.
func (r *Reactor) nextTick(d time.Duration) time.Duration {
	return (r.cfg.Now().Sub(r.timers.base)/d + 1) * d
}

// StopTimer stops t, which may be nil. It has no effect if the timer has run. Holder only.
func (r *Reactor) StopTimer(t *Timer) {
	if t == nil {
		return
	}
	t.fn = nil
	if t.index >= 0 {
		heap.Remove(&r.timers.heap, t.index)
		r.timers.publish()
	}
}

func (ts *timers) add(t *Timer) {
	ts.count++
	t.order = ts.count
	heap.Push(&ts.heap, t)
	ts.publish()
}

func (ts *timers) publish() {
	if len(ts.heap) == 0 {
		ts.first.Store(never)
		ts.stop()
		return
	}
	ts.first.Store(int64(ts.heap[0].at))
	if ts.alarm != nil {
		ts.setAlarm()
	}
}

// setAlarm sets the alarm for soon after the deadline in first. Two goroutines may call it at the
// same time (a spinning loop in due, and the holder), and the later one may have loaded an older
// deadline. So each checks first again.
func (ts *timers) setAlarm() {
	for {
		d := ts.first.Load()
		ts.mayBeDue.Store(false)
		left := max(time.Duration(d)-time.Since(ts.base), 0)
		ts.alarm.Reset(left + min(left/alarmPart, alarmMost))
		if ts.first.Load() == d {
			return
		}
	}
}

// next returns the earliest deadline, or the zero time if there is none.
func (ts *timers) next() time.Time {
	if d := ts.first.Load(); d != never {
		return ts.base.Add(time.Duration(d))
	}
	return time.Time{}
}

func (ts *timers) due(now func() time.Time) bool {
	d := ts.first.Load()
	if d == never || ts.alarm != nil && !ts.mayBeDue.Load() {
		return false
	}
	if int64(now().Sub(ts.base)) >= d {
		return true
	}
	if ts.alarm != nil { // too early: the alarm was for a timer that was stopped
		ts.setAlarm()
	}
	return false
}

// run runs the timers that are due, earliest first. Timers with the same time run in the order in
// which they were added.
func (ts *timers) run(now func() time.Time) {
	if !ts.due(now) {
		return
	}
	limit := now().Sub(ts.base)
	for len(ts.heap) > 0 && ts.heap[0].at <= limit {
		t := heap.Pop(&ts.heap).(*Timer)
		ts.publish()
		if fn := t.fn; fn != nil {
			t.fn = nil
			fn()
		}
	}
}

type timerHeap []*Timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].at == h[j].at {
		return h[i].order < h[j].order
	}
	return h[i].at < h[j].at
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*Timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
