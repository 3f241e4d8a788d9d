package reactor

import "time"

// DefaultRecheck is the default of Config.Recheck. A reactor with Queues polls its completion queues
// at this interval even without an event. If the event of a completion is lost, the reactor finds
// the completion at most one interval late. Each interval costs one wake-up.
const DefaultRecheck = time.Second

// A device writes a completion before it raises the completion's event. So if a recheck finds a
// completion whose event has not come, the event may still come. Then a second recheck runs
// Config.Recheck/lateFor later. If the event has not come by then, it counts as lost. With
// DefaultRecheck this delay is 125 ms, ten times the longest preemption seen on a processor of an
// emulated machine.
const lateFor = 8

// A device, its kernel driver or the C library may lose a completion event. Without a recheck the
// loop would then sleep forever, because only the event would wake it. So while the reactor has a
// Queue, a timer wakes the loop for a pass. The timer also runs while no send is outstanding, for two
// reasons. A receive may complete at any time. And only the loop adds timers: if the timer did not
// run, a driver that posts a send would have to wake the loop to start the timer.
//
// If a completion queue is armed and empty, the next completion must raise an event. The states of
// a completion queue are fields of cqState:
//
//	armed ──polled empty──> armedEmpty ──completion polled──> eventDue ──recheck──> eventOverdue
//	  │ event                   │ event                          │ event              │ event, recheck
//	  v                         v                                v                    v
//	not armed, until the next arm
//
// If a recheck finds a completion queue in eventOverdue, the event counts as lost
// (Stats.MissedEvents).
//
// A completion queue in eventDue or eventOverdue is not armed again. Otherwise the late event of the
// first arming could be taken for the event of the second arming.

// armRecheck starts the recheck timer unless it is running. The timer fires at whole multiples of
// Config.Recheck. So the timers of reactors with equal intervals fire at the same time, and an
// idle process wakes one time for all of them. Only the holder calls the functions of this file.
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
	r.takeEvents() // an event that is still in the channel is not lost
	r.pass(false)
	late := false
	for _, s := range r.cqs {
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

// disarm records that the completion queue is not armed: its event came or could not be read, or
// counts as lost.
func (s *cqState) disarm() {
	s.armed, s.armedEmpty, s.eventDue, s.eventOverdue = false, false, false, false
}

// expect updates the state of s after a poll. The arguments are the number of completions that the
// poll took (found) and the largest number that it could take (room). If found < room, the poll left
// the completion queue empty. If the completion queue is armed and was polled empty, the next
// completion must raise an event. (A completion that came before the arming raises no event.) So if
// a later poll finds a completion, the event of this completion is due.
func (s *cqState) expect(found, room int) {
	switch {
	case !s.armed:
	case found > 0 && s.armedEmpty:
		s.eventDue = true
	case found < room:
		s.armedEmpty = true
	}
}
