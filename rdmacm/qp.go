package rdmacm

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// QPInitAttr describes a queue pair to make.
//
// Implements: struct ibv_qp_init_attr.
type QPInitAttr struct {
	// SendCQ and RecvCQ get the completions. With nil the queue pair has one of its own, which
	// GetSendComp or GetRecvComp reads.
	SendCQ, RecvCQ *CQ
	// SRQ supplies the receives. With nil it is that of the identifier (CreateSRQ), or else the queue
	// pair has receives of its own.
	SRQ *SRQ
	// Cap holds the capacities. CreateQP writes the granted ones. MaxSendWR and MaxRecvWR bound the
	// requests that are posted, or completed and not taken from the completion queue.
	Cap verbs.QPCap
	// Type is the type of the identifier (ID.QPType), or 0, which means that: RC, UD, XRC_SEND or XRC_RECV.
	// XRC_SEND has no receives, and its
	// messages name the shared receive queue that takes them (SendWR.RemoteSRQN). XRC_RECV has neither
	// sends nor receives of its own, no protection domain and no completion queues: the receives are
	// those of the XRC shared receive queues of XRCD.
	Type verbs.QPType
	XRCD verbs.XRCD // XRC_RECV: the domain; nil selects the device's
	// SQSigAll has every request complete, as if it had SIGNALED.
	SQSigAll bool
}

// queuePair is the queue pair of an identifier.
//
//	CreateQP ──> made ── Connect and ESTABLISHED, or Accept ──> sendable
//	UD: CreateQP ──> sendable
//	both ── DestroyQP ──> gone
type queuePair struct {
	id       *ID
	dev      *Device
	pd       verbs.PD
	q        *reactor.Queue // nil for XRC_RECV
	typ      verbs.QPType
	num      uint32
	send     *CQ
	recv     *CQ
	srq      *SRQ // nil: it has receives of its own
	sigAll   bool
	sendable uatomic.Bool // the program may post sends; set once
	gone     bool         // drops completions; holder only
}

// CreateQP makes the queue pair of the identifier, in a protection domain of its device; nil selects
// the device's. In port space TCP receives may be posted from now on, and sends when the connection is
// established. In port space UDP both may be posted. CreateQP waits for the reactor and the device.
//
// Implements: rdma_create_qp, rdma_create_qp_ex.
func (id *ID) CreateQP(pd verbs.PD, attr *QPInitAttr) error {
	if id == nil {
		return errNil("rdma_create_qp")
	}
	const op = "rdma_create_qp"
	id.life.Lock()
	defer id.life.Unlock()
	dev, err := id.bound(op)
	switch {
	case err != nil:
		return err
	case attr == nil:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the attributes are missing", verbs.ErrInvalid))
	case id.qp.Load() != nil:
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: the identifier has a queue pair", verbs.ErrInvalid))
	}
	if err := dev.within(&attr.Cap); err != nil {
		return failure(op, id, syscall.EINVAL, err)
	}
	p := &queuePair{id: id, dev: dev, typ: attr.Type, srq: attr.SRQ, send: attr.SendCQ, recv: attr.RecvCQ, sigAll: attr.SQSigAll}
	if p.typ == 0 {
		p.typ = id.typ
	}
	switch p.typ {
	case verbs.QPTXRCRecv:
		return id.createXRCRecv(p, attr.XRCD)
	case verbs.QPTXRCSend:
		if p.srq != nil || p.recv != nil || attr.Cap.MaxRecvWR > 0 {
			return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: a queue pair of type XRC_SEND has no receives", verbs.ErrInvalid))
		}
	default:
		if p.srq == nil {
			p.srq = id.srq.Load()
		}
	}
	cfg := reactor.QueueConfig{
		PD: pd, Type: p.typ, SendDepth: max(int(attr.Cap.MaxSendWR), 1), RecvDepth: int(attr.Cap.MaxRecvWR),
		MaxSGE: int(max(attr.Cap.MaxSendSGE, 1)), RecvSGE: int(max(attr.Cap.MaxRecvSGE, 1)), Inline: int(attr.Cap.MaxInlineData),
	}
	if pd == nil {
		cfg.PD = dev.pd
	}
	p.pd = cfg.PD
	if cfg.Inline == 0 {
		cfg.Inline = -1
	}
	if p.srq != nil {
		cfg.RecvDepth, cfg.Shared = 0, p.srq.q
	}
	sends, recvs := cfg.SendDepth, cfg.RecvDepth
	if cfg.RecvDepth == 0 {
		cfg.RecvDepth = -1
	}
	if p.send == nil {
		p.send = newCQ(dev, sends)
		p.send.private = true
	}
	if p.recv == nil {
		entries := recvs
		if p.srq != nil {
			entries = p.srq.depth
		}
		p.recv = newCQ(dev, max(entries, 1))
		p.recv.private = true
	}
	if p.send.dev != dev || p.recv.dev != dev || p.srq != nil && p.srq.dev != dev || p.send.destroyed() || p.recv.destroyed() {
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: a queue of another device, or one that is destroyed", verbs.ErrInvalid))
	}
	if err := p.make(cfg); err != nil {
		return named(op, id, err)
	}
	attr.Cap.MaxInlineData = uint32(p.q.Inline())
	attr.Cap.MaxSendWR, attr.Cap.MaxRecvWR = uint32(sends), uint32(recvs)
	attr.Cap.MaxSendSGE, attr.Cap.MaxRecvSGE = uint32(cfg.MaxSGE), uint32(cfg.RecvSGE)
	if p.typ == verbs.QPTUD {
		p.sendable.Store(true)
	}
	id.qp.Store(p)
	return nil
}

// within returns an error if c exceeds the limits of the device, so that its members can be used as numbers
// of things to make.
func (d *Device) within(c *verbs.QPCap) error {
	for _, m := range []struct {
		name string
		n    uint32
		most int
	}{
		{"MaxSendWR", c.MaxSendWR, d.limits.MaxQPWR}, {"MaxRecvWR", c.MaxRecvWR, d.limits.MaxQPWR},
		{"MaxSendSGE", c.MaxSendSGE, d.limits.MaxSGE}, {"MaxRecvSGE", c.MaxRecvSGE, d.limits.MaxSGE},
		{"MaxInlineData", c.MaxInlineData, math.MaxInt32},
	} {
		if err := most(m.name, m.n, m.most); err != nil {
			return err
		}
	}
	return nil
}

// most returns an error if n, the value of the named member, is above a limit of the device.
func most(name string, n uint32, limit int) error {
	if int64(n) > int64(limit) {
		return fmt.Errorf("%w: %s is %d, want at most %d", verbs.ErrInvalid, name, n, limit)
	}
	return nil
}

// createXRCRecv makes a queue pair of type XRC_RECV.
func (id *ID) createXRCRecv(p *queuePair, x verbs.XRCD) error {
	if x == nil {
		var err error
		if x, err = p.dev.domain(); err != nil {
			return named("rdma_create_qp", id, err)
		}
	}
	if err := id.cm.CreateQP(nil, &verbs.QPInitAttr{Type: p.typ, XRCD: x}); err != nil {
		return named("rdma_create_qp", id, err)
	}
	p.num, p.send, p.recv, p.pd = id.cm.QP().Num(), nil, nil, p.dev.pd // pd: for RegMsgs
	id.qp.Store(p)
	return nil
}

// make makes the queue and the queue pair.
func (p *queuePair) make(cfg reactor.QueueConfig) error {
	q, err := p.dev.r.Prepare(cfg)
	if err != nil {
		return err
	}
	p.q = q
	admitted := false
	err = p.dev.do(func() error {
		if err := q.Admit(); err != nil {
			return err
		}
		admitted = true
		init := q.InitAttr()
		if err := p.id.cm.CreateQP(cfg.PD, init); err != nil {
			return errors.Join(err, q.Release(err))
		}
		qp := p.id.cm.QP()
		q.Bind(qp, init.Cap)
		p.num = qp.Num()
		p.send.attach()
		p.recv.attach()
		p.srq.join(p)
		return nil
	})
	if err != nil && !admitted {
		err = errors.Join(err, q.Discard())
	}
	return err
}

// DestroyQP destroys the queue pair of the identifier, if there is one. Requests that are outstanding
// have no completion any more, and the device does not use their memory when DestroyQP returns. It
// waits for the reactor and the device. Calls that post at the same time fail. After an error (verbs.ErrBusy while
// events of the queue pair are not acknowledged) requests and completions have ended, and DestroyQP must be called
// again.
//
// Implements: rdma_destroy_qp.
func (id *ID) DestroyQP() error {
	if id == nil {
		return errNil("rdma_destroy_qp")
	}
	id.life.Lock()
	defer id.life.Unlock()
	return id.destroyQP()
}

// destroyQP is DestroyQP. The caller holds life.
func (id *ID) destroyQP() error {
	p := id.qp.Swap(nil)
	if p == nil {
		return nil
	}
	var err error
	if p.q != nil {
		p.q.Fail(verbs.ErrClosed)
		err = p.dev.do(func() error {
			p.gone = true
			p.q.Seal()
			return nil
		})
	}
	if err == nil {
		if err = id.cm.DestroyQP(); errors.Is(err, verbs.ErrDeviceRemoved) {
			err = nil
		}
	}
	if err != nil {
		id.qp.Store(p)
		return named("rdma_destroy_qp", id, err)
	}
	if p.q == nil {
		return nil
	}
	err = p.dev.do(func() error {
		err := p.q.Release(verbs.ErrClosed)
		p.send.detach()
		p.recv.detach()
		p.srq.leave(p)
		if p.pd != p.dev.pd {
			p.dev.r.Drain() // has the reactor end its registrations there: the program may close it now
		}
		return err
	})
	for _, c := range []*CQ{p.send, p.recv} {
		if c.private {
			err = errors.Join(err, c.Destroy())
		}
	}
	if p.pd != p.dev.pd {
		err = errors.Join(err, p.dev.bounce.drop(p.pd))
	}
	return named("rdma_destroy_qp", id, err)
}

// QP returns the queue pair, for queries. The program must not post to it, change its state or close
// it. It is nil if there is none.
//
// Implements: the member qp of struct rdma_cm_id.
func (id *ID) QP() verbs.QP { return id.cm.QP() }

// SendCQ and RecvCQ return the completion queues of the queue pair; nil if there is none.
//
// Implements: the members send_cq and recv_cq of struct rdma_cm_id.
func (id *ID) SendCQ() *CQ {
	if p := id.qp.Load(); p != nil {
		return p.send
	}
	return nil
}

// RecvCQ is described at SendCQ. Without a queue pair that has receives, it is the completion queue of the
// identifier's XRC shared receive queue.
func (id *ID) RecvCQ() *CQ {
	if p := id.qp.Load(); p != nil && p.recv != nil {
		return p.recv
	}
	if s := id.srq.Load(); s != nil {
		return s.cq
	}
	return nil
}

// sendable has the queue pair accept sends: it is in RTS, or about to be.
func (id *ID) sendable() {
	if p := id.qp.Load(); p != nil {
		p.sendable.Store(true)
	}
}

// sendSink receives the results of signaled sends, quietSink those of others, recvSink those of
// receives. They are the queue pair under names with methods of their own, so that a request takes no
// memory for its sink.
type (
	sendSink  queuePair
	quietSink queuePair
	recvSink  queuePair
)

// Complete implements reactor.Sink.
func (s *sendSink) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if !s.gone {
		complete(s.send, s.num, &c, err)
	}
}

// Complete implements reactor.Sink. An unsignaled request completes only with an error, as in C.
func (s *quietSink) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if err != nil && !s.gone {
		complete(s.send, s.num, &c, err)
	}
}

// Complete implements reactor.Sink.
func (s *recvSink) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if !s.gone {
		(*queuePair)(s).arrived()
		complete(s.recv, s.num, &c, err)
	}
}

// arrived has the queue pair accept sends before the goroutine in Accept does: the peer's first message may be
// faster.
func (p *queuePair) arrived() {
	if !p.sendable.Load() {
		p.sendable.Store(true)
	}
}

// complete adds the completion of a request to a completion queue. Holder only.
func complete(to *CQ, num uint32, c *reactor.Completion, err error) {
	wc := verbs.WC{WRID: c.Tag, QPNum: num}
	if err == nil {
		wc.Opcode, wc.ByteLen, wc.SrcQP, wc.Flags, wc.SLID = c.Opcode, c.Bytes, c.SrcQP, c.Flags, c.SLID
		if wc.ImmData = verbs.NetworkOrder(c.Imm); c.Flags&verbs.WCWithInv != 0 {
			wc.ImmData = c.Imm
		}
	} else if errors.Is(err, reactor.ErrQueueFailed) {
		wc.Status = verbs.WCWRFlushErr // the device has not seen the request
	} else if e, ok := errors.AsType[*verbs.WCError](err); ok {
		wc.Status, wc.VendorErr = e.Status, e.VendorErr
	} else if errno, ok := errors.AsType[syscall.Errno](err); ok {
		wc.Status, wc.VendorErr = verbs.WCLocQPOpErr, uint32(errno) // the device refused the request
	} else {
		wc.Status = verbs.WCWRFlushErr
	}
	to.push(&wc)
}
