package reactor

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// SharedRecv is a shared receive queue attached to a reactor. Queue pairs made with it
// (QueueConfig.Shared) take their receives from it. Completion.QPNum is the number of the queue
// pair that took the receive.
//
//	 PrepareShared           Admit, Bind          Release
//	───────────────> unbound ───────────> open ─────────────> released
//
// A SharedRecv behaves like a [Queue] without sends. If one of the queue pairs fails, the
// SharedRecv does not fail. If the failed queue pair had already taken a receive, this receive ends
// with the error of its completion. All other receives remain for the other queue pairs.
type SharedRecv struct{ q *Queue }

// PrepareShared makes a SharedRecv. The argument depth is the largest
// number of receives that are submitted and not completed. A receive has at most maxSGE
// scatter-gather elements. A depth or maxSGE of 0 selects the default. Any goroutine may call
// PrepareShared, without the turn. If the caller does not admit the SharedRecv, it must call Discard.
func (r *Reactor) PrepareShared(pd verbs.PD, depth, maxSGE int) (*SharedRecv, error) {
	if r.device.MaxSRQ == 0 {
		return nil, fmt.Errorf("%w: shared receive queues: %w", ErrConfig, verbs.ErrNotSupported)
	}
	q, err := r.Prepare(QueueConfig{PD: pd, RecvDepth: depth, MaxSGE: maxSGE, Inline: -1, receiving: true})
	if err != nil {
		return nil, err
	}
	return &SharedRecv{q}, nil
}

// validateShared is QueueConfig.validate for the queue of a SharedRecv.
func (c QueueConfig) validateShared() (QueueConfig, error) {
	c.RecvDepth = orDefault(c.RecvDepth, DefaultRecvDepth)
	c.MaxSGE = orDefault(c.MaxSGE, DefaultMaxSGE)
	c.SendDepth, c.ControlDepth, c.Inline, c.SignalEvery = 0, 0, 0, 1
	switch {
	case c.RecvDepth < 1 || c.RecvDepth > maxDepth:
		return c, fmt.Errorf("%w: %d shared receives, want 1 to %d", ErrConfig, c.RecvDepth, maxDepth)
	case c.MaxSGE < 1 || c.MaxSGE > maxSGEs:
		return c, fmt.Errorf("%w: MaxSGE is %d, want 1 to %d", ErrConfig, c.MaxSGE, maxSGEs)
	}
	return c, nil
}

// Admit assigns an id to s and reserves room in the receive completion queue; see [Queue.Admit].
// Release ends s. Only the holder may call Admit.
func (s *SharedRecv) Admit() error {
	err := s.q.Admit()
	if err == nil {
		s.q.r.shared = append(s.q.r.shared, s.q)
	}
	return err
}

// Attr returns the attributes with which the caller makes the shared receive queue for s.
func (s *SharedRecv) Attr() *verbs.SRQAttr {
	return &verbs.SRQAttr{MaxWR: uint32(s.q.cfg.RecvDepth), MaxSGE: uint32(s.q.cfg.MaxSGE), UserData: uint64(s.q.id)}
}

// AttrXRC is Attr for a shared receive queue of the domain x: messages to queue pairs of type XRC_RECV, which
// name it by its number, take its receives.
func (s *SharedRecv) AttrXRC(x verbs.XRCD) *verbs.SRQAttr {
	a := s.Attr()
	a.XRCD, a.CQ = x, s.q.recvCQ.cq
	return a
}

// Bind gives s its shared receive queue. As long as no other goroutine knows s, the caller need not
// hold the turn. After that only the holder may call Bind.
func (s *SharedRecv) Bind(srq verbs.SRQ) {
	s.q.srq = srq
	s.q.failed.open() // publishes srq to submitters
}

// OnFail sets fn, which the reactor calls when s fails: a completion queue is dead, the device is
// gone, or a sink panicked. The reactor calls fn at most one time, with the turn held. Call OnFail
// before Bind.
func (s *SharedRecv) OnFail(fn func(error)) { s.q.OnFail(fn) }

// PostRecv submits a receive; see [Queue.PostRecv].
func (s *SharedRecv) PostRecv(r *Recv, sges []verbs.SGE, m SubmitMode) error {
	return s.q.PostRecv(r, sges, m)
}

// PostRecvLater submits a receive that is not needed before a message of another queue of the reactor
// tells a peer of it: the pass that posts that message posts this receive first. No pass is caused. If
// no request follows, the receive stays unposted until Release.
func (s *SharedRecv) PostRecvLater(r *Recv, sges []verbs.SGE) error {
	return s.q.PostRecvLater(r, sges)
}

// Ready has the next pass post the receives of PostRecvLater. It does not wake the loop. Any goroutine may
// call it.
func (s *SharedRecv) Ready() { s.q.submit(NoWakeup) }

// gatherShared moves the submitted receives of the shared receive queues into the batch. It comes last,
// so that a receive that was submitted before a send is in the batch of that send. Holder only.
func (r *Reactor) gatherShared() {
	for _, q := range r.shared {
		if q.hasRecvs() {
			q.gatherRecvs()
		}
	}
}

// SRQ returns the shared receive queue, or nil before Bind.
func (s *SharedRecv) SRQ() verbs.SRQ { return s.q.srq }

// Release ends s. The caller must have destroyed the shared receive queue. Before Release returns,
// it completes all remaining receives with an error that wraps cause. Only the holder may call
// Release. Release is idempotent.
func (s *SharedRecv) Release(cause error) error {
	s.leave()
	return s.q.Release(cause)
}

// leave undoes what Admit adds to that of a Queue.
func (s *SharedRecv) leave() {
	r := s.q.r
	r.shared = slices.DeleteFunc(r.shared, func(q *Queue) bool { return q == s.q })
}

// Withdraw undoes Admit if the shared receive queue could not be made. The caller must call Discard
// next. Only the holder may call Withdraw.
func (s *SharedRecv) Withdraw() {
	q, r := s.q, s.q.r
	s.leave()
	r.queues[q.id] = nil
	r.freeIDs = append(r.freeIDs, q.id)
	q.releaseCQEntries()
	r.live--
}

// Discard gives back the memory of a SharedRecv that was not admitted, or was withdrawn.
func (s *SharedRecv) Discard() error { return s.q.Discard() }

// srq returns the shared receive queue. It returns nil if s is nil.
func (s *SharedRecv) srq() verbs.SRQ {
	if s == nil {
		return nil
	}
	return s.q.srq
}
