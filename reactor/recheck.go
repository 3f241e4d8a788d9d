package reactor

import "time"

// DefaultRecheck is how often a reactor that has queues looks at its completion
// queues whether it was told to or not. It bounds how late a completion is whose
// event got lost, at the price of one wake-up in that time.
const DefaultRecheck = time.Second

// A completion event that is lost, by a device, its driver or the C library,
// would leave the loop asleep for ever over a queue that it believes armed:
// nothing but the event says that a completion came. So while there are queues a
// timer runs, always (a driver may post behind a loop that sleeps already, and a
// receive may complete at any time). When it fires both queues count as not
// armed: the turns that follow poll them, and arm them again before the loop
// sleeps. Arming twice is harmless.

// watchOver starts the timer if it does not run. Holder only, as all of this
// file.
func (r *Reactor) watchOver() {
	if r.watched || r.cfg.Stepped || r.cfg.Recheck < 0 {
		return
	}
	r.watched = true
	r.After(r.cfg.Recheck, r.recheck)
}

func (r *Reactor) recheck() {
	if r.watched = false; r.live == 0 {
		return
	}
	r.takeEvents() // an event that waits was not lost
	for _, s := range []*cqState{&r.sendCQ, &r.recvCQ} {
		s.suspect = s.armed
		s.armed = false
	}
	r.watchOver()
}

// missed counts a poll of a queue that was armed, had no event, and has
// completions nevertheless.
func (r *Reactor) missed(s *cqState, found int) {
	if s.suspect && found > 0 {
		r.stats.Missed++
	}
	s.suspect = false
}
