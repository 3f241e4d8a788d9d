package rpma

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// SRQ is a shared receive queue: its receives serve all connections that are made with it.
//
// Implements: struct rpma_srq.
type SRQ struct {
	peer   *Peer
	q      *runtime.SharedRecv
	rcq    *CQ // nil: receives complete to the CQ of the connection that takes them
	places places
	// conns has the connections by the numbers of their queue pairs, if rcq is nil. The map is never
	// changed: join and leave, which hold mu, replace it. The sink of receives reads it.
	conns atomic.Pointer[map[uint32]*Conn]

	mu     sync.Mutex
	closed atomic.Bool // written by Close under mu; Recv reads it. It publishes nothing
}

// NewSRQ makes a shared receive queue. With cfg nil it has the defaults. NewSRQ waits for a reactor, and on a
// real device for the kernel.
//
// Errors: ErrInvalid for a negative size; ErrNotSupported if the device has no shared receive queues;
// ErrProvider.
//
// Implements: rpma_srq_new.
func (p *Peer) NewSRQ(cfg *SRQConfig) (_ *SRQ, err error) {
	const op = "rpma_srq_new"
	c, err := cfg.validate(op)
	if err == nil {
		err = p.fits(op, c.RCQSize)
	}
	if err != nil {
		return nil, err
	}
	if err = p.enter(op); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.leave()
		}
	}()
	s := &SRQ{peer: p}
	s.places.most = int32(c.RQSize)
	if s.q, err = p.rt.NewSharedRecv(c.RQSize, 1); err != nil {
		return nil, classified(op, err)
	}
	if c.RCQSize > 0 {
		b, err := newBell(p, seam.LoopReactor(s.q.Loop()))
		if err != nil {
			return nil, fail(op, ErrProvider, errors.Join(err, s.q.Close()))
		}
		s.rcq = newCQ(b, false, max(c.RCQSize, c.RQSize))
	}
	return s, nil
}

// Recv posts a receive of the n bytes of dst from off on; dst may be nil for a receive of no bytes. The
// device owns the bytes until the completion, which has the given word. The receives of an SRQ are a set:
// any message of any of its connections may take any of them.
//
// Errors: ErrInvalid; ErrProvider with ENOMEM if as many receives are posted, and not taken from a CQ, as
// SRQConfig permits.
//
// Implements: rpma_srq_recv.
func (s *SRQ) Recv(dst *MR, off, n int, word uint64) error {
	const op = "rpma_srq_recv"
	local, err := piece(op, dst, off, n)
	if err != nil {
		return err
	}
	if s.closed.Load() {
		return fail(op, ErrInvalid, verbs.ErrClosed)
	}
	if !s.places.take() {
		return fail(op, ErrProvider, runtime.ErrRecvFull)
	}
	if err = s.q.PostRecvTo(s, word, local); err != nil {
		s.places.free()
		return classified(op, err)
	}
	return nil
}

// Arrived implements runtime.ArrivalSink.
func (s *SRQ) Arrived(a runtime.Arrival, err error) {
	to, qpn := s.rcq, a.QPNum
	e, failed := errors.AsType[*verbs.WCError](err)
	if failed {
		qpn = e.QPNum
	}
	if all := s.conns.Load(); to == nil && all != nil {
		if c := (*all)[qpn]; c != nil {
			to = c.recvCQ()
		}
	}
	if to == nil || !failed && errors.Is(err, verbs.ErrClosed) { // the latter: the SRQ is being closed
		s.places.free()
		return
	}
	to.push(&a.Result, qpn, err, &s.places)
}

// RCQ returns the receive CQ of the SRQ, or nil if it has none.
//
// Implements: rpma_srq_get_rcq.
func (s *SRQ) RCQ() *CQ { return s.rcq }

// join has receives that c takes complete to the CQ of c.
func (s *SRQ) join(c *Conn) {
	if s != nil && s.rcq == nil {
		s.change(func(all map[uint32]*Conn) { all[c.qpn] = c })
	}
}

// leave undoes join. The number may be that of a newer connection already.
func (s *SRQ) leave(c *Conn) {
	if s != nil && s.rcq == nil {
		s.change(func(all map[uint32]*Conn) {
			if all[c.qpn] == c {
				delete(all, c.qpn)
			}
		})
	}
}

func (s *SRQ) change(by func(map[uint32]*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[uint32]*Conn{}
	if old := s.conns.Load(); old != nil {
		maps.Copy(all, *old)
	}
	by(all)
	s.conns.Store(&all)
}

// Close ends the SRQ. Receives that are posted do not complete any more; their memory is the program's
// again. While connections use the SRQ, Close changes nothing and returns an ErrProvider that
// matches runtime.ErrBusy. Close is idempotent. It waits for the reactor.
//
// Implements: rpma_srq_delete.
func (s *SRQ) Close() error {
	const op = "rpma_srq_delete"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil
	}
	if err := s.q.Close(); err != nil {
		return fail(op, ErrProvider, fmt.Errorf("closing an SRQ: %w", err))
	}
	s.closed.Store(true)
	if s.rcq != nil {
		s.rcq.bell.close()
	}
	s.peer.leave()
	return nil
}
