package reactor

import "time"

// DefaultRecheck is how often a reactor that has queues looks at its completion
// queues whether it was told to or not. It bounds how late a completion is whose
// event got lost, at the price of one wake-up in that time.
const DefaultRecheck = time.Second

// lateFor is the part of Config.Recheck for which an event may be on its way
// after its completion was polled. A device tells of a completion after writing
// it, so that a poll may well be faster than the event; an event that is not
// there after that long counts as lost. (By default that is 125 ms; a preempted
// processor of an emulated machine is away for 10.)
const lateFor = 8

// A completion event that is lost, by a device, its driver or the C library,
// would leave the loop asleep for ever over a queue that it believes armed:
// nothing but the event says that a completion came. So while there are queues a
// timer runs, always (a driver may post behind a loop that sleeps already, and a
// receive may complete at any time). It wakes the loop, whose turn polls. What
// that or any other poll finds in an armed queue must have an event, which is
// told from one that is merely slow by waiting:
//
//	armed ──polled empty──> silent ──polled full──> owed ──recheck──> late
//	  ^                        │                     │                 │ │
//	  │<───── event; arm ──────┴─────────────────────┴─────────────────┘ │
//	  └<───── arm ───── lost: Stats.MissedEvents <─────────────recheck─────────┘
//
// A queue whose event is late is not armed again before that counts as lost: the
// late event would pass for one of the second arming.

// armRecheck starts the timer if it does not run: for whole multiples of Recheck, at
// which the other reactors of an idle process wake, too. Holder only, as all of this
// file.
func (r *Reactor) armRecheck() {
	if r.recheckArmed || r.cfg.Stepped || r.cfg.Recheck < 0 {
		return
	}
	r.recheckArmed = true
	r.runAt(r.nextTick(r.cfg.Recheck), r.recheck)
}

func (r *Reactor) recheck() {
	if r.recheckArmed = false; r.live == 0 {
		return
	}
	r.stats.Rechecks++
	r.takeEvents() // an event that waits was not lost
	r.pass(false)
	late := false
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		switch {
		case s.eventOverdue:
			r.stats.MissedEvents++
			s.disarm()
		case s.eventDue:
			s.eventOverdue, late = true, true
		}
	}
	if late {
		r.recheckArmed = true
		r.After(max(r.cfg.Recheck/lateFor, 1), r.recheck)
		return
	}
	r.armRecheck()
}

// disarm notes that a queue is not armed: its event came, or never will.
func (s *cqState) disarm() {
	s.armed, s.armedEmpty, s.eventDue, s.eventOverdue = false, false, false, false
}

// expect notes after a poll whether an event must come. What was in the queue
// before it was armed has none: so only what comes after a poll of the armed
// queue has left it empty is owed one.
func (s *cqState) expect(found, room int) {
	switch {
	case !s.armed:
	case found > 0 && s.armedEmpty:
		s.eventDue = true
	case found < room:
		s.armedEmpty = true
	}
}
