package reactor

import "time"

// Stats holds the counters of a reactor, which start at 0 in New. Stats is comparable.
type Stats struct {
	Passes         uint64
	Doorbells      uint64 // send lists posted
	WorkRequests   uint64 // sends posted
	MaxBatch       uint64 // longest send list
	RecvDoorbells  uint64
	RecvRequests   uint64
	Polled         uint64 // completions polled
	MaxPoll        uint64 // most completions that one poll took
	Completions    uint64 // operations that ended
	Retired        uint64 // of Completions: sends that ended because a later send completed
	Failed         uint64 // failed completions
	PostFailures   uint64 // lists that the device refused wholly or in part (bad_wr)
	CarriedOver    uint64 // sends left for the next pass because their queue's list was full
	Delayed        uint64 // times a backlog was held back (Config.FlushDelay)
	Overdue        uint64 // of Delayed: times when FlushDelay had passed, so that the backlog was posted
	Grown          uint64 // times a completion queue was made larger, or another one was made
	Stale          uint64 // completions that matched no operation
	Stranded       uint64 // sends that were outstanding when the device refused the marker; see postMarker
	Unanswered     uint64 // atomics that completed without their answer
	PeerTimeouts   uint64 // queues whose peer did not answer within PeerLimit.Bound
	KeepAlives     uint64 // keep-alive probes sent
	Unflushed      uint64 // operations that were still outstanding when Release ended them
	Arms           uint64
	Events         uint64
	ChannelWakeups uint64 // wake-ups of the loop, or of a waiting goroutine, by the completion channel
	Rechecks       uint64 // passes that Config.Recheck caused
	MissedEvents   uint64 // lost events that rechecks found
	Wakeups        uint64 // wake-ups of the loop by submitters, and by holders that left work for the loop
	Drives         uint64 // times a waiting goroutine began to drive
	Offers         uint64 // times a leaving holder gave the turn to a parked waiter
	Sleeps         uint64
	Spins          uint64        // times the loop began to spin (Config.Policy)
	SpinsInVain    uint64        // of Spins: times when the loop found nothing within the spin budget
	MaxSpin        time.Duration // the present spin budget; 0 unless the policy is PolicyThroughput
	Returned       uint64        // times a holder returned the turn to the spinning loop without arming
	Queues         int
	Outstanding    int
	// Rings estimates the bytes that the rings of the completion queues, queue pairs and shared receive queues
	// take now. The system pins them, and charges them to RLIMIT_MEMLOCK. The estimate is libmlx5's layout, on all
	// devices; other libraries have requests of similar sizes.
	Rings uint64

	MaxOutstanding uint64        // most outstanding sends of one queue when a list was posted
	MaxSlotWait    time.Duration // the longest wait that SlotWaits counts
	SlotWaitTime   time.Duration // the sum of all waits that SlotWaits counts
	// Lists counts the posted send lists by the number of sends that the device took. Occupancy counts
	// the same lists by the number of the queue's outstanding sends, which include the sends of the
	// list.
	Lists, Occupancy Histogram
	// Polls counts the polls of completion queues by the number of completions that they took. Most
	// passes poll two completion queues.
	Polls Histogram
	// SlotWaits counts the waits of submitters for a slot by duration, in microseconds. It includes
	// the waits that ended without a slot.
	SlotWaits Histogram
}

// Stats returns the counters. It takes the turn, and waits for it if necessary. Any goroutine but
// the holder may call it.
func (r *Reactor) Stats() (s Stats) {
	r.withTurn(func() { s = r.snapshot() })
	return s
}

func (r *Reactor) snapshot() Stats {
	s := r.stats
	t := r.tok.Stats()
	s.Wakeups, s.Drives, s.Offers, s.Sleeps = t.Wakeups.Load(), t.Drives.Load(), t.Offers.Load(), t.Sleeps.Load()
	r.addSpinStats(&s)
	s.Queues, s.Outstanding, s.Rings = r.live, r.outstanding, r.rings()
	r.slotWaits.snapshot(&s)
	return s
}

// WRsPerDoorbell returns the average number of sends per doorbell.
func (s Stats) WRsPerDoorbell() float64 {
	if s.Doorbells == 0 {
		return 0
	}
	return float64(s.WorkRequests) / float64(s.Doorbells)
}

// Add returns the sum of s and o. A field that is a maximum gets the larger value.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Passes: s.Passes + o.Passes, Doorbells: s.Doorbells + o.Doorbells, WorkRequests: s.WorkRequests + o.WorkRequests,
		MaxBatch: max(s.MaxBatch, o.MaxBatch), RecvDoorbells: s.RecvDoorbells + o.RecvDoorbells,
		RecvRequests: s.RecvRequests + o.RecvRequests, Polled: s.Polled + o.Polled, MaxPoll: max(s.MaxPoll, o.MaxPoll),
		Completions: s.Completions + o.Completions, Retired: s.Retired + o.Retired, Failed: s.Failed + o.Failed,
		PostFailures: s.PostFailures + o.PostFailures, CarriedOver: s.CarriedOver + o.CarriedOver, Delayed: s.Delayed + o.Delayed, Overdue: s.Overdue + o.Overdue, Grown: s.Grown + o.Grown, Stale: s.Stale + o.Stale, Stranded: s.Stranded + o.Stranded,
		Unanswered: s.Unanswered + o.Unanswered, PeerTimeouts: s.PeerTimeouts + o.PeerTimeouts, KeepAlives: s.KeepAlives + o.KeepAlives, Unflushed: s.Unflushed + o.Unflushed,
		Arms: s.Arms + o.Arms, Events: s.Events + o.Events, ChannelWakeups: s.ChannelWakeups + o.ChannelWakeups,
		Rechecks: s.Rechecks + o.Rechecks, MissedEvents: s.MissedEvents + o.MissedEvents, Wakeups: s.Wakeups + o.Wakeups, Drives: s.Drives + o.Drives,
		Offers: s.Offers + o.Offers, Sleeps: s.Sleeps + o.Sleeps, Spins: s.Spins + o.Spins, SpinsInVain: s.SpinsInVain + o.SpinsInVain,
		MaxSpin: max(s.MaxSpin, o.MaxSpin), Returned: s.Returned + o.Returned, Queues: s.Queues + o.Queues, Outstanding: s.Outstanding + o.Outstanding, Rings: s.Rings + o.Rings,
		MaxOutstanding: max(s.MaxOutstanding, o.MaxOutstanding), MaxSlotWait: max(s.MaxSlotWait, o.MaxSlotWait), SlotWaitTime: s.SlotWaitTime + o.SlotWaitTime,
		Lists: s.Lists.Add(o.Lists), Occupancy: s.Occupancy.Add(o.Occupancy), Polls: s.Polls.Add(o.Polls), SlotWaits: s.SlotWaits.Add(o.SlotWaits),
	}
}
