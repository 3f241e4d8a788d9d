package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// SRQ is a shared receive queue: its receives serve all queue pairs made with it. A receive completes
// to the receive completion queue of the queue pair that took it.
//
// Implements: struct ibv_srq.
type SRQ struct {
	dev   *Device
	q     *reactor.SharedRecv
	depth int
	qps   map[uint32]*queuePair // by number; holder only
}

// CreateSRQ makes a shared receive queue for the identifier and, with QPInitAttr.SRQ, for others of the
// device. The identifier destroys it. The protection domain pd may be nil: that of the device. Of attr,
// MaxWR and MaxSGE are read. CreateSRQ waits for the reactor and the device.
//
// Implements: rdma_create_srq, rdma_create_srq_ex.
func (id *ID) CreateSRQ(pd verbs.PD, attr *verbs.SRQAttr) error {
	const op = "rdma_create_srq"
	dev, err := id.Device()
	switch {
	case err != nil:
		return named(op, id, err)
	case dev == nil:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the identifier is not bound to a device", verbs.ErrInvalid))
	case attr == nil || attr.MaxWR == 0:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the attributes are missing", verbs.ErrInvalid))
	case id.srq.Load() != nil:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the identifier has a shared receive queue", verbs.ErrInvalid))
	}
	if pd == nil {
		pd = dev.pd
	}
	s := &SRQ{dev: dev, depth: int(attr.MaxWR), qps: map[uint32]*queuePair{}}
	if s.q, err = dev.r.PrepareShared(pd, s.depth, int(max(attr.MaxSGE, 1))); err != nil {
		return named(op, id, err)
	}
	err = dev.do(func() error {
		if err := s.q.Admit(); err != nil {
			return err
		}
		srq, err := pd.CreateSRQ(s.q.Attr())
		if err != nil {
			s.q.Withdraw()
			return err
		}
		s.q.Bind(srq)
		return nil
	})
	if err != nil {
		return named(op, id, errors.Join(err, s.q.Discard()))
	}
	id.srq.Store(s)
	return nil
}

// SRQ returns the shared receive queue that CreateSRQ has made; nil if there is none.
//
// Implements: the member srq of struct rdma_cm_id.
func (id *ID) SRQ() *SRQ { return id.srq.Load() }

// DestroySRQ destroys the shared receive queue of the identifier, if there is one. While queue pairs
// use it, DestroySRQ returns verbs.ErrBusy. Posted receives do not complete any more.
//
// Implements: rdma_destroy_srq.
func (id *ID) DestroySRQ() error {
	s := id.srq.Load()
	if s == nil {
		return nil
	}
	err := s.dev.do(func() error {
		if n := len(s.qps); n > 0 {
			return fmt.Errorf("%w: %d queue pairs use it", verbs.ErrBusy, n)
		}
		if err := s.q.SRQ().Close(); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
			return err
		}
		return s.q.Release(verbs.ErrClosed)
	})
	if err == nil {
		id.srq.Store(nil)
	}
	return named("rdma_destroy_srq", id, err)
}

// join adds a queue pair, and returns the room that the receives need in its completion queue. s may be
// nil. Holder only.
func (s *SRQ) join(p *queuePair) int {
	if s == nil {
		return 0
	}
	s.qps[p.num] = p
	return s.depth
}

// leave undoes join.
func (s *SRQ) leave(p *queuePair) int {
	if s == nil {
		return 0
	}
	delete(s.qps, p.num)
	return s.depth
}

// Complete implements reactor.Sink, for the receives of s.
func (s *SRQ) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if e, ok := errors.AsType[*verbs.WCError](err); ok {
		c.QPNum = e.QPNum
	}
	if p := s.qps[c.QPNum]; p != nil && !p.gone {
		complete(p.recv, p.num, &c, err)
	}
}
