package reactor

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// A reactor begins with a completion queue for sends and one for receives. Admit reserves one entry for
// each request that a Queue may have outstanding, so the completion queues cannot overflow. When a
// Queue is reclaimed, its entries are free again.
//
// If Config.CQEntries sets the capacity of the completion queues, the capacity is fixed. Otherwise
// the first two have DefaultCQEntries entries, or as many as the device permits. When a Queue finds too few entries, Admit doubles the
// capacity of a completion queue, up to the device's limit. Where that limit is reached, or the device
// cannot resize completion queues, Admit makes another one of the double capacity. (Libraries without
// ibv_resize_cq: cxgb4, efa, erdma, hns, ionic, mana, qedr, siw and vmw_pvrdma; rdma-core v65, providers.)
// So a reactor with one Queue pins little memory, and one with ten thousand Queues has few completion queues
// to poll.
//
// The capacity is what the device has granted. It may be more than was asked for.

// reserveCQEntries chooses the completion queues of q, and reserves an entry for each of its sends and
// receives. If there is no room for all of them, it reserves none and returns an error. It may resize or
// make completion queues, which enters the kernel. Only the holder calls reserveCQEntries.
func (q *Queue) reserveCQEntries() error {
	r := q.r
	sendCQ, err := r.roomIn(&r.sendCQs, q.cfg.sends(), "sends")
	if err != nil {
		return err
	}
	recvCQ, err := r.roomIn(&r.recvCQs, q.cfg.RecvDepth, "receives")
	if err != nil {
		return err
	}
	q.sendCQ, q.recvCQ = sendCQ, recvCQ
	sendCQ.room -= q.cfg.sends()
	recvCQ.room -= q.cfg.RecvDepth
	return nil
}

// releaseCQEntries gives back the entries that reserveCQEntries reserved.
func (q *Queue) releaseCQEntries() {
	q.sendCQ.room += q.cfg.sends()
	q.recvCQ.room += q.cfg.RecvDepth
}

// withRoom returns the first completion queue of the list that has n unreserved entries, or nil.
func withRoom(list []*cqState, n int) *cqState {
	for _, s := range list {
		if s.room >= n {
			return s
		}
	}
	return nil
}

// roomIn returns a completion queue of the list with n unreserved entries. If there is none, it resizes the
// last one or adds one. The argument kind, "sends" or "receives", is for the error text.
func (r *Reactor) roomIn(list *[]*cqState, n int, kind string) (*cqState, error) {
	if s := withRoom(*list, n); s != nil {
		return s, nil
	}
	last := (*list)[len(*list)-1]
	most := last.entries
	if !r.cfg.fixedCQs {
		most = max(most, r.device.MaxCQE)
	}
	if n > most { // too many even if no other Queue had reserved entries
		return nil, fmt.Errorf("%w: the queue needs %d completion queue entries for %s, but a completion queue can have at most %d (Config.CQEntries if it is set, otherwise the limit of the device)", ErrConfig, n, kind, most)
	}
	why := error(nil)
	if !r.cfg.fixedCQs {
		var s *cqState
		if s, why = r.grow(list, n, most); why == nil {
			r.stats.Grown++
			return s, nil
		}
	}
	err := fmt.Errorf("%w: the queue needs %d completion queue entries for %s; %d of %d are not reserved, and there can be at most %d",
		ErrTooMany, n, kind, last.room, last.entries, most)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return nil, err
}

// grow resizes the last completion queue of the list, or adds one, so that n entries are unreserved. The
// device's limit is most.
func (r *Reactor) grow(list *[]*cqState, n, most int) (*cqState, error) {
	last := (*list)[len(*list)-1]
	if used := last.entries - last.room; used+n <= most && !r.noResize {
		err := last.cq.Resize(doubled(last.entries, used+n, most))
		if err == nil {
			last.granted()
			return last, nil
		}
		if !errors.Is(err, verbs.ErrNotSupported) {
			return nil, err
		}
		r.noResize = true
	}
	return r.addCQ(list, doubled(last.entries, n, most))
}

// doubled returns a capacity of at least n entries, and at most most. It doubles entries at least once. Drivers
// add an entry, and round up to a power of two (mlx5 and bnxt_re do): the double of a power of two less one fits into
// twice the ring.
func doubled(entries, n, most int) int {
	for first := true; first || entries < n; first = false {
		entries = min(2*entries, most)
	}
	return entries
}

// reclaimForRoom reclaims quarantined Queues (qp_quarantine.go) if too few entries are unreserved
// for a new Queue. Admit calls it before reserveCQEntries, because the completion queues need not
// grow if enough entries are reclaimed.
func (r *Reactor) reclaimForRoom(sends, recvs int) {
	if len(r.quarantined) > 0 && (withRoom(r.sendCQs, sends) == nil || withRoom(r.recvCQs, recvs) == nil) {
		r.pass(false)
		r.reclaimAll()
	}
}

// addCQ makes a completion queue of at least the given capacity, and adds it to the list.
func (r *Reactor) addCQ(list *[]*cqState, entries int) (_ *cqState, err error) {
	s := &cqState{receives: list == &r.recvCQs}
	if s.wcArena, err = mem.Map(r.cfg.PollBatch*verbs.SizeofWC, mem.Options{Node: r.cfg.Node}); err != nil {
		return nil, err
	}
	var ok bool
	if s.wc, ok = mem.Array[verbs.WC](s.wcArena, s.wcArena.Addr(), r.cfg.PollBatch); !ok {
		err = fmt.Errorf("reactor: no room for %d completions", r.cfg.PollBatch)
	} else {
		s.cq, err = r.ctx.CreateCQ(entries, r.channel, r.cfg.CompVector, uint64(len(r.cqs)))
	}
	if err != nil {
		return nil, errors.Join(err, s.wcArena.Unmap())
	}
	s.granted()
	*list, r.cqs = append(*list, s), append(r.cqs, s)
	r.setPolls()
	return s, nil
}

// granted takes over the capacity that the device has granted.
func (s *cqState) granted() {
	was := s.entries
	s.entries = s.cq.Capacity()
	s.room += s.entries - was
}
