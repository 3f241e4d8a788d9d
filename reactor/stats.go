package reactor

import "time"

// Stats count what a reactor did since it was made. It is a value, and comparable.
type Stats struct {
	Passes         uint64
	Doorbells      uint64 // send lists posted
	WorkRequests   uint64 // sends posted
	MaxBatch       uint64 // longest send list
	RecvDoorbells  uint64
	RecvRequests   uint64
	Polled         uint64 // completions taken
	MaxPoll        uint64 // most in one poll
	Completions    uint64 // operations ended
	Retired        uint64 // of those, unsignaled ones
	Failed         uint64 // failed completions
	PostFailures   uint64 // lists cut by bad_wr
	CarriedOver    uint64 // sends kept for the next turn, because their queue had its part of one
	Delayed        uint64 // times a send list was held back (Config.FlushDelay)
	Overdue        uint64 // of those, posted because their time was up
	Grown          uint64 // times a completion queue was made larger
	Stale          uint64 // completions that matched no operation
	Stranded       uint64 // operations waiting for the queue pair's end
	Unanswered     uint64 // atomics that completed without their answer
	PeerTimeouts   uint64 // queues whose peer did not answer within Limit.Bound
	KeepAlives     uint64 // requests sent to ask whether the peer is there
	Unflushed      uint64 // operations that ended with their queue pair, without a completion
	Arms           uint64
	Events         uint64
	ChannelWakeups uint64 // times the completion channel woke the loop
	Rechecks       uint64 // looks by Config.Recheck
	MissedEvents   uint64 // events that never came, found by those looks
	Wakeups        uint64 // bells rung
	Drives         uint64 // times a waiting goroutine ran the reactor
	Offers         uint64 // turns handed from driver to waiter
	Sleeps         uint64
	Spins          uint64        // times the loop began to spin, by Config.Policy
	SpinsInVain    uint64        // of those, it found nothing for its budget
	MaxSpin        time.Duration // its budget for spinning now; 0: Config.Spin turns, or always
	Returned       uint64        // turns a driver left to the spinning loop, unarmed
	Queues         int
	Outstanding    int

	MaxOutstanding uint64        // most sends of one queue that were out when a list was posted
	MaxSlotWait    time.Duration // the longest of Stalls
	SlotWaitTime   time.Duration // all of them together
	// Lists are the send lists by how many requests of them the device took: as many
	// as Doorbells. Occupancy is how many sends of its queue were out when a list was
	// posted, with those of the list.
	Lists, Occupancy Histogram
	// Polls are the polls of a completion queue by how many completions they took; two
	// queues are polled in most turns.
	Polls Histogram
	// SlotWaits are the waits for room in a send queue, by microseconds, those that were
	// given up too.
	SlotWaits Histogram
}

// Stats reads the counters. It takes the turn for a moment; not from the turn.
func (r *Reactor) Stats() (s Stats) {
	r.withTurn(func() { s = r.snapshot() })
	return s
}

func (r *Reactor) snapshot() Stats {
	s := r.stats
	t := r.tok.Stats()
	s.Wakeups, s.Drives, s.Offers, s.Sleeps = t.Wakeups.Load(), t.Drives.Load(), t.Offers.Load(), t.Sleeps.Load()
	r.addSpinStats(&s)
	s.Queues, s.Outstanding = r.live, r.outstanding
	r.slotWaits.snapshot(&s)
	return s
}

// WRsPerDoorbell is how many sends one doorbell carried on average.
func (s Stats) WRsPerDoorbell() float64 {
	if s.Doorbells == 0 {
		return 0
	}
	return float64(s.WorkRequests) / float64(s.Doorbells)
}

// Add is both counted together; maxima are the larger.
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
		MaxSpin: max(s.MaxSpin, o.MaxSpin), Returned: s.Returned + o.Returned, Queues: s.Queues + o.Queues, Outstanding: s.Outstanding + o.Outstanding,
		MaxOutstanding: max(s.MaxOutstanding, o.MaxOutstanding), MaxSlotWait: max(s.MaxSlotWait, o.MaxSlotWait), SlotWaitTime: s.SlotWaitTime + o.SlotWaitTime,
		Lists: s.Lists.Add(o.Lists), Occupancy: s.Occupancy.Add(o.Occupancy), Polls: s.Polls.Add(o.Polls), SlotWaits: s.SlotWaits.Add(o.SlotWaits),
	}
}
