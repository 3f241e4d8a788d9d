package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Admit reserves room for a Queue in the completion queues, for all requests that the Queue may
// ever have outstanding; reclaim gives the room back. So neither completion queue can overflow.
// Unless Config.CQEntries fixes their capacity they double as needed, up to the device's limit:
// the capacity for ten thousand Queues would be a waste for one.

// reserveCQEntries reserves room for sends and recvs in the completion queues, or returns why there is
// none. It may resize them, which enters the kernel. Holder only.
func (r *Reactor) reserveCQEntries(sends, recvs int) error {
	if err := r.grow(&r.sendCQ, sends, "sends"); err != nil {
		return err
	}
	if err := r.grow(&r.recvCQ, recvs, "receives"); err != nil {
		return err
	}
	r.sendCQ.room -= sends
	r.recvCQ.room -= recvs
	return nil
}

// releaseCQEntries gives back the room that reserveCQEntries reserved.
func (r *Reactor) releaseCQEntries(sends, recvs int) {
	r.sendCQ.room += sends
	r.recvCQ.room += recvs
}

func (s *cqState) has(n int) bool { return s.room >= n }

// grow makes sure that s has n unreserved entries.
func (r *Reactor) grow(s *cqState, n int, what string) error {
	if s.has(n) {
		return nil
	}
	why, most := error(nil), s.entries
	if !r.cfg.fixedCQs {
		most = max(most, r.device.MaxCQE)
	}
	if n > most { // too many even if all other Queues give theirs back
		return fmt.Errorf("%w: %d %s wanted, a completion queue has at most %d (Config.CQEntries, or what the device has)", ErrConfig, n, what, most)
	}
	if s.entries-s.room+n <= most {
		entries := s.entries
		for entries-s.entries+s.room < n {
			entries = min(2*entries, most)
		}
		if why = s.cq.Resize(entries); why == nil {
			s.room += entries - s.entries
			s.entries = entries
			r.stats.Grown++
			return nil
		}
	}
	err := fmt.Errorf("%w: %d %s wanted, the completion queue has room for %d of %d, and may have %d",
		ErrTooMany, n, what, s.room, s.entries, most)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// reclaimForRoom reclaims quarantined Queues if there is no room without that. Admit calls it
// before it lets the completion queues grow.
func (r *Reactor) reclaimForRoom(sends, recvs int) {
	if len(r.quarantined) > 0 && (!r.sendCQ.has(sends) || !r.recvCQ.has(recvs)) {
		r.pass(false)
		r.reclaimAll()
	}
}

// makeCQ makes a completion queue whose completions are polled into wc.
func (r *Reactor) makeCQ(s *cqState, wc []verbs.WC, userData uint64) (err error) {
	if s.cq, err = r.ctx.CreateCQ(r.cfg.CQEntries, r.channel, r.cfg.CompVector, userData); err != nil {
		return err
	}
	s.wc, s.entries, s.room = wc, r.cfg.CQEntries, r.cfg.CQEntries
	return nil
}
