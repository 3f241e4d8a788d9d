package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// SRQInitAttr describes a shared receive queue to make.
//
// Implements: struct ibv_srq_init_attr, struct ibv_srq_init_attr_ex.
type SRQInitAttr struct {
	MaxWR, MaxSGE uint32 // the most receives, at least 1, and elements of each; 0 elements: 1
	// XRCD makes an XRC queue: the receives are for queue pairs of type XRC_RECV of the domain, and complete
	// to CQ. With a nil CQ the queue has one of its own, which GetRecvComp of the identifier reads. The queue of
	// an identifier of type XRC_RECV is always one of XRC; nil selects the device's domain.
	XRCD verbs.XRCD
	CQ   *CQ
}

// SRQ is a shared receive queue: its receives serve all queue pairs made with it. A receive completes
// to the receive completion queue of the queue pair that took it, or of an XRC queue to its own.
//
// Implements: struct ibv_srq.
type SRQ struct {
	dev   *Device
	q     *reactor.SharedRecv
	depth int
	cq    *CQ                   // of an XRC queue
	qps   map[uint32]*queuePair // by number; holder only; none for an XRC queue
	num   uint32
	gone  bool // drops completions; holder only
}

// CreateSRQ makes a shared receive queue for the identifier and, with QPInitAttr.SRQ, for others of the
// device. The identifier destroys it. The protection domain pd may be nil: that of the device. CreateSRQ
// waits for the reactor and the device.
//
// Implements: rdma_create_srq, rdma_create_srq_ex.
func (id *ID) CreateSRQ(pd verbs.PD, attr *SRQInitAttr) error {
	if id == nil {
		return errNil("rdma_create_srq")
	}
	const op = "rdma_create_srq"
	id.life.Lock()
	defer id.life.Unlock()
	dev, err := id.bound(op)
	switch {
	case err != nil:
		return err
	case attr == nil || attr.MaxWR == 0:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the attributes are missing", verbs.ErrInvalid))
	case attr.CQ != nil && (attr.XRCD == nil && id.typ != verbs.QPTXRCRecv || attr.CQ.dev != dev || attr.CQ.destroyed()):
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: a completion queue of another device, or without a domain", verbs.ErrInvalid))
	case id.srq.Load() != nil:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the identifier has a shared receive queue", verbs.ErrInvalid))
	}
	if err := errors.Join(most("MaxWR", attr.MaxWR, dev.limits.MaxSRQWR), most("MaxSGE", attr.MaxSGE, dev.limits.MaxSRQSGE)); err != nil {
		return failure(op, id, syscall.EINVAL, err)
	}
	if pd == nil {
		pd = dev.pd
	}
	x := attr.XRCD
	if x == nil && id.typ == verbs.QPTXRCRecv {
		if x, err = dev.domain(); err != nil {
			return named(op, id, err)
		}
	}
	s := &SRQ{dev: dev, depth: int(attr.MaxWR), qps: map[uint32]*queuePair{}, cq: attr.CQ}
	if x != nil && s.cq == nil {
		s.cq = newCQ(dev, s.depth)
		s.cq.private = true
	}
	if s.q, err = dev.r.PrepareShared(pd, s.depth, int(max(attr.MaxSGE, 1))); err != nil {
		return named(op, id, err)
	}
	err = dev.do(func() error {
		if err := s.q.Admit(); err != nil {
			return err
		}
		a := s.q.Attr()
		if x != nil {
			a = s.q.AttrXRC(x)
		}
		srq, err := pd.CreateSRQ(a)
		if err != nil {
			s.q.Withdraw()
			return err
		}
		s.q.Bind(srq)
		if s.num = srq.Num(); s.cq != nil {
			s.cq.attach()
		}
		return nil
	})
	if err != nil {
		return named(op, id, errors.Join(err, s.q.Discard()))
	}
	id.srq.Store(s)
	return nil
}

// Num returns the number of an XRC queue, for SendWR.RemoteSRQN; 0 for others.
//
// Implements: ibv_get_srq_num.
func (s *SRQ) Num() uint32 { return s.num }

// Query reads the capacities and the limit from the device. UserData, XRCD and CQ are not set. It waits for the
// reactor and the device. After DestroySRQ the error is verbs.ErrClosed.
//
// Implements: ibv_query_srq.
func (s *SRQ) Query() (a verbs.SRQAttr, err error) {
	if s == nil {
		return verbs.SRQAttr{}, errNil("ibv_query_srq")
	}
	err = s.dev.do(func() error {
		if s.gone {
			return verbs.ErrClosed
		}
		a, err = s.q.SRQ().Query()
		return err
	})
	return verbs.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}, named("ibv_query_srq", nil, err)
}

// SetLimit asks for one event SRQ_LIMIT_REACHED when a receive is taken and fewer than limit are left; 0 asks for none.
// The asynchronous events of Device.Context have it. Limits above MaxWR are verbs.ErrInvalid. It waits for the reactor and the
// device. After DestroySRQ the error is verbs.ErrClosed. The size of the queue does not change: ibv_modify_srq with
// IBV_SRQ_MAX_WR is not offered, because the reactor has a place for each of MaxWR receives.
//
// Implements: ibv_modify_srq with IBV_SRQ_LIMIT.
func (s *SRQ) SetLimit(limit uint32) error {
	if s == nil {
		return errNil("ibv_modify_srq")
	}
	return named("ibv_modify_srq", nil, s.dev.do(func() error {
		if s.gone {
			return verbs.ErrClosed
		}
		if a, err := s.q.SRQ().Query(); err != nil { // not every driver looks at it
			return err
		} else if limit > a.MaxWR {
			return fmt.Errorf("%w: a limit of %d, the queue has %d receives", verbs.ErrInvalid, limit, a.MaxWR)
		}
		return s.q.SRQ().SetLimit(limit)
	}))
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
	if id == nil {
		return errNil("rdma_destroy_srq")
	}
	id.life.Lock()
	defer id.life.Unlock()
	return id.destroySRQ()
}

// destroySRQ is DestroySRQ. The caller holds life.
func (id *ID) destroySRQ() error {
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
		if s.cq != nil {
			s.cq.detach()
		}
		s.gone = true
		return s.q.Release(verbs.ErrClosed)
	})
	if err == nil {
		if id.srq.Store(nil); s.cq != nil && s.cq.private {
			err = s.cq.Destroy()
		}
	}
	return named("rdma_destroy_srq", id, err)
}

// join adds a queue pair. s may be nil. Holder only.
func (s *SRQ) join(p *queuePair) {
	if s != nil {
		s.qps[p.num] = p
	}
}

// leave undoes join.
func (s *SRQ) leave(p *queuePair) {
	if s != nil {
		delete(s.qps, p.num)
	}
}

// Complete implements reactor.Sink, for the receives of s.
func (s *SRQ) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if e, ok := errors.AsType[*verbs.WCError](err); ok {
		c.QPNum = e.QPNum
	}
	if s.gone {
		return
	}
	if s.cq != nil {
		complete(s.cq, c.QPNum, &c, err)
	} else if p := s.qps[c.QPNum]; p != nil && !p.gone {
		p.arrived()
		complete(p.recv, p.num, &c, err)
	}
}
