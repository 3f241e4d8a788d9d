package reactor

import (
	"container/heap"
	"math"
	"sync/atomic"
	"time"
)

// Timer runs a function one time, with the turn held, at a given time.
type Timer struct {
	at    time.Duration // when to run fn, as a duration since timers.base
	fn    func()
	index int // position in timers.heap; -1 if the timer is not there
	order uint64
}

// timers holds the timers of one reactor. The timers' clock counts durations since base. So a step
// of the wall clock moves no timer. The holder owns the heap.
type timers struct {
	base  time.Time // time 0 of the timers' clock: epoch if the clock is the machine's, else the first reading
	heap  timerHeap
	count uint64
	// first holds the earliest deadline. If there is no timer, it holds 2^63-1 (never). The holder
	// writes it. The loop reads it before it sleeps, and timers.due reads it. It publishes no other
	// data.
	first atomic.Int64
	// alarm is a timer of the Go runtime. It fires a little after the earliest deadline,
	// and sets mayBeDue. While mayBeDue is not set, timers.due does not read the clock, because one
	// reading takes a tenth of the time of a synchronous operation. A loop that sleeps wakes at the
	// deadline, before the alarm fires, and sets mayBeDue itself. When the loop then runs the
	// timer, it sets the alarm for the next deadline. So the alarm does not fire for the
	// deadline that has passed. alarm is nil if the reactor is stepped or Config.Now is set.
	alarm *time.Timer
	// mayBeDue is set when the earliest deadline may have passed. The alarm sets it, and so does a
	// loop that has slept until the deadline. setAlarm clears it before it sets the alarm. timers.due
	// reads it. mayBeDue publishes no other data.
	mayBeDue atomic.Bool
}

// epoch is timers.base of all reactors that use the machine's clock. So work at whole multiples of
// an interval is due at the same time in all these reactors, and costs the process one wake-up.
var epoch = time.Now()

// The alarm fires min(left/alarmPart, alarmMost) after the earliest deadline, where left is the
// time until that deadline when the alarm is set. So a short timer stays exact, and a long timer runs
// at most alarmMost late. A loaded machine would delay a timer by as much anyway.
const (
	alarmPart = 16
	alarmMost = 10 * time.Millisecond
)

// never is a deadline that does not come: 2^63-1 ns is 292 years.
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

// After runs fn, with the turn held, when the duration d has passed. StopTimer stops the timer. Any
// goroutine may call After. After allocates.
func (r *Reactor) After(d time.Duration, fn func()) *Timer {
	since := r.cfg.Now().Sub(r.timers.base)
	at := since + d
	if at < since && d > 0 { // overflow
		at = never
	}
	return r.runAt(at, fn)
}

// runAt is After for an absolute time on the timers' clock.
func (r *Reactor) runAt(at time.Duration, fn func()) *Timer {
	t := &Timer{at: at, fn: fn, index: -1}
	// Defer lets the loop add the timer. If another goroutine added it, the loop could sleep past the
	// deadline.
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

// StopTimer stops t, which may be nil. It has no effect if the timer has run. Only the holder may call
// StopTimer.
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

// setAlarm sets the alarm for the earliest deadline. A spinning loop may call it (in timers.due) at
// the same time as the holder. The call that sets the alarm last may have loaded an old deadline. So
// each call loads the deadline a second time after it has set the alarm, and starts over if the
// deadline has changed.
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
	if ts.alarm != nil { // too early: the alarm was set for a timer that is stopped now
		ts.setAlarm()
	}
	return false
}

// run runs the timers that are due, earliest first. Timers with the same deadline run in
// the order in which they were added.
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
