package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// A reactor has a completion queue for sends and one for receives. Admit reserves one entry for
// each request that a Queue may have outstanding, so the completion queues cannot overflow. When a
// Queue is reclaimed, its entries are free again.
//
// If Config.CQEntries sets the capacity of the completion queues, the capacity is fixed. Otherwise
// each of them starts with DefaultCQEntries entries, and Admit doubles its capacity when needed, up
// to the device's limit. (A fixed capacity for ten thousand Queues would be wasted on a reactor
// with one Queue.)

// reserveCQEntries reserves entries for a Queue with the given numbers of sends and receives. If
// there is no room for all of them, it reserves none and returns an error. It may resize the
// completion queues, which enters the kernel. Only the holder calls reserveCQEntries.
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

// releaseCQEntries gives back the entries that reserveCQEntries reserved.
func (r *Reactor) releaseCQEntries(sends, recvs int) {
	r.sendCQ.room += sends
	r.recvCQ.room += recvs
}

func (s *cqState) has(n int) bool { return s.room >= n }

// grow makes sure that n entries of s are unreserved. If fewer entries are unreserved, grow resizes
// the completion queue. The argument kind, "sends" or "receives", is for the error text.
func (r *Reactor) grow(s *cqState, n int, kind string) error {
	if s.has(n) {
		return nil
	}
	why, most := error(nil), s.entries
	if !r.cfg.fixedCQs {
		most = max(most, r.device.MaxCQE)
	}
	if n > most { // too many even if no other Queue had reserved entries
		return fmt.Errorf("%w: the queue needs %d completion queue entries for %s, but a completion queue can have at most %d (Config.CQEntries if it is set, otherwise the limit of the device)", ErrConfig, n, kind, most)
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
	err := fmt.Errorf("%w: the queue needs %d completion queue entries for %s; %d of %d are not reserved, and there can be at most %d",
		ErrTooMany, n, kind, s.room, s.entries, most)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// reclaimForRoom reclaims quarantined Queues (qp_quarantine.go) if too few entries are unreserved
// for a new Queue. Admit calls it before reserveCQEntries, because the completion queues need not
// grow if enough entries are reclaimed.
func (r *Reactor) reclaimForRoom(sends, recvs int) {
	if len(r.quarantined) > 0 && (!r.sendCQ.has(sends) || !r.recvCQ.has(recvs)) {
		r.pass(false)
		r.reclaimAll()
	}
}

// makeCQ makes the completion queue of s. Its completions are polled into wc.
func (r *Reactor) makeCQ(s *cqState, wc []verbs.WC, userData uint64) (err error) {
	if s.cq, err = r.ctx.CreateCQ(r.cfg.CQEntries, r.channel, r.cfg.CompVector, userData); err != nil {
		return err
	}
	s.wc, s.entries, s.room = wc, r.cfg.CQEntries, r.cfg.CQEntries
	return nil
}
