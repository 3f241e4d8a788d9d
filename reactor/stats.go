package reactor

// Stats count what a reactor did since it was made.
type Stats struct {
	Turns         uint64
	Doorbells     uint64 // send lists posted
	WorkRequests  uint64 // sends posted
	MaxBatch      uint64 // longest send list
	RecvDoorbells uint64
	RecvRequests  uint64
	Polled        uint64 // completions taken
	MaxPoll       uint64 // most in one poll
	Completions   uint64 // operations ended
	Retired       uint64 // of those, unsignaled ones
	Failed        uint64 // failed completions
	PostFailures  uint64 // lists cut by bad_wr
	Stale         uint64 // completions that matched no operation
	Stranded      uint64 // operations waiting for the queue pair's end
	Arms          uint64
	Events        uint64
	Rings         uint64 // bells rung
	Drives        uint64 // times a waiting goroutine ran the reactor
	Offers        uint64 // turns handed from driver to waiter
	Sleeps        uint64
	Queues        int
	Outstanding   int
}

// Stats reads the counters. It takes the turn for a moment; not from the turn.
func (r *Reactor) Stats() (s Stats) {
	r.tok.WithTurn(func() { s = r.snapshot() })
	return s
}

func (r *Reactor) snapshot() Stats {
	s := r.stats
	t := r.tok.Stats()
	s.Rings, s.Drives, s.Offers, s.Sleeps = t.Rings.Load(), t.Drives.Load(), t.Offers.Load(), t.Sleeps.Load()
	s.Queues, s.Outstanding = r.live, r.outstanding
	return s
}

// WRsPerDoorbell is how many sends one doorbell carried on average.
func (s Stats) WRsPerDoorbell() float64 {
	if s.Doorbells == 0 {
		return 0
	}
	return float64(s.WorkRequests) / float64(s.Doorbells)
}
