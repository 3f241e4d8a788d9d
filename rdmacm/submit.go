package rdmacm

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// maxInline is the largest number of inline bytes that a request gathers on the stack.
const maxInline = 512

// transfer posts a WRITE or READ of registered memory.
func (id *ID) transfer(op string, opcode verbs.WROpcode, userContext uint64, buf []byte, mr *MR, flags verbs.SendFlags, remote uint64, rkey uint32) error {
	sge, err := mr.sge(buf)
	if err != nil {
		return failure(op, id, syscall.EINVAL, err)
	}
	p, err := id.ready()
	if err == nil {
		sink := p.sink(&flags)
		flags &^= verbs.SendSolicited // says nothing without a message; C takes it
		t := reactor.Transfer{Opcode: opcode, Flags: flags, Remote: remote, RKey: rkey, Local: sge, Sink: sink, Tag: userContext}
		err = p.submitted(t.Sink, userContext, nil, p.q.TransferNow(&t))
	}
	if err != nil {
		return named(op, id, err)
	}
	return nil
}

// message posts a request with one piece of memory.
func (id *ID) message(op string, s *reactor.Send, buf []byte, mr *MR, flags verbs.SendFlags) error {
	p, err := id.ready()
	if err != nil {
		return named(op, id, err)
	}
	if uint64(len(buf)) > math.MaxUint32 {
		return failure(op, id, syscall.EINVAL, tooLong(uint64(len(buf))))
	}
	var one [1]verbs.SGE
	var load reactor.Payload
	switch {
	case flags&verbs.SendInline != 0 || mr == nil && len(buf) <= p.q.Inline():
		if load.Inline = buf; buf == nil {
			load.Inline = []byte{}
		}
	case mr == nil:
		if one[0], s.Lease, err = p.dev.bounce.copy(p.pd, buf); err != nil {
			return named(op, id, err)
		}
		load.SGEs = one[:]
	default:
		if one[0], err = mr.sge(buf); err != nil {
			return failure(op, id, syscall.EINVAL, err)
		}
		load.SGEs = one[:]
	}
	if err = p.submit(s, &load, flags&^verbs.SendInline); err != nil {
		return named(op, id, err)
	}
	p.dev.flush()
	return nil
}

// gathered posts a request with a scatter-gather list.
func (id *ID) gathered(op string, s *reactor.Send, sgl []verbs.SGE, flags verbs.SendFlags) error {
	p, err := id.ready()
	if err == nil {
		err = p.submitGathered(s, sgl, flags)
	}
	if err != nil {
		return named(op, id, err)
	}
	p.dev.flush()
	return nil
}

// submitGathered submits a request with a scatter-gather list. With INLINE it copies the bytes now: the
// program may change them when the call returns, and the device may get the request later.
func (p *queuePair) submitGathered(s *reactor.Send, sgl []verbs.SGE, flags verbs.SendFlags) error {
	if flags&verbs.SendInline == 0 {
		return p.submit(s, &reactor.Payload{SGEs: sgl}, flags)
	}
	var space [maxInline]byte
	all := space[:0]
	for _, e := range sgl {
		if e.Length == 0 {
			continue
		}
		a, ok := mem.Find(e.Addr, int(e.Length))
		if !ok || len(all)+int(e.Length) > maxInline {
			return fmt.Errorf("%w: inline bytes at 0x%x: %d of memory that is not registered, or more than %d", verbs.ErrInvalid, e.Addr, e.Length, maxInline)
		}
		b, _ := mem.Array[byte](a, e.Addr, int(e.Length))
		all = append(all, b...)
	}
	return p.submit(s, &reactor.Payload{Inline: all}, flags&^verbs.SendInline)
}

// unposted is the mode of all submissions: Device.flush or Device.posted follows.
const unposted = reactor.NonBlock | reactor.NoWakeup

// submit submits a send, and takes its lease.
func (p *queuePair) submit(s *reactor.Send, load *reactor.Payload, flags verbs.SendFlags) error {
	s.Sink = p.sink(&flags)
	s.Flags = flags
	_, err := p.q.Submit(background, s, load, unposted)
	return p.submitted(s.Sink, s.Tag, s.Lease, err)
}

// submitted returns the error of a submission that has returned err. A request of a queue pair that has
// failed is no error: it completes with a flush error, as in C; for that submitted waits for the reactor. If the
// reactor has not taken the request, submitted ends the lease, a buffer of bouncer or nil.
func (p *queuePair) submitted(s reactor.Sink, tag uint64, lease reactor.Lease, err error) error {
	if err == nil {
		return nil
	}
	failed := errors.Is(err, reactor.ErrQueueFailed)
	if at, ok := lease.(*bounce); ok {
		if failed {
			at.refused()
		} else {
			at.End()
		}
	}
	if failed {
		return p.dev.do(func() error {
			if p.gone {
				return ErrNoQP
			}
			s.Complete(reactor.SinkContext{}, reactor.Completion{Tag: tag}, err)
			return nil
		})
	}
	if errors.Is(err, reactor.ErrRecvFull) || errors.Is(err, reactor.ErrQueueFull) {
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}

// flush has the device get the submitted requests: on the calling goroutine, so that the post needs no
// other, or by a goroutine that runs the reactor now. It does not block.
func (d *Device) flush() {
	if !d.r.TryPass() {
		d.r.Wake()
	}
}

// posted is flush that returns when the device has the requests. Receives need that: a datagram that
// finds no receive is lost.
func (d *Device) posted() error {
	if d.r.TryPass() {
		return nil
	}
	return d.r.Do(background, d.r.Flush)
}

// sink returns the sink of a send with these flags, to which it adds SIGNALED if all sends have it. The device
// signals such a request, as in C: its completion does not wait for a later request, which may meet RNR NAKs.
func (p *queuePair) sink(flags *verbs.SendFlags) reactor.Sink {
	if p.sigAll {
		*flags |= verbs.SendSignaled
	}
	if *flags&verbs.SendSignaled != 0 {
		return (*sendSink)(p)
	}
	return (*quietSink)(p)
}

// ready returns the queue pair if a send may be posted.
func (id *ID) ready() (*queuePair, error) {
	p := id.qp.Load()
	switch {
	case p == nil:
		return nil, ErrNoQP
	case p.q == nil:
		return nil, fmt.Errorf("%w: a queue pair of type XRC_RECV sends nothing", verbs.ErrInvalid)
	case !p.sendable.Load():
		return nil, ErrNotConnected
	case p.send.full():
		return nil, ErrQueueFull
	}
	return p, nil
}

// submitRecv submits a receive, and returns the device.
func (id *ID) submitRecv(userContext uint64, sgl []verbs.SGE) (*Device, error) {
	p := id.qp.Load()
	if p == nil || p.srq != nil || p.q == nil {
		s := id.srq.Load()
		if p != nil && p.srq != nil {
			s = p.srq
		}
		if s == nil {
			return nil, ErrNoQP
		}
		return s.dev, s.submit(userContext, sgl)
	}
	if p.recv.full() {
		return nil, ErrQueueFull
	}
	r := reactor.Recv{Tag: userContext, Sink: (*recvSink)(p)}
	return p.dev, p.submitted(r.Sink, userContext, nil, p.q.PostRecv(&r, sgl, unposted))
}

// submit submits a receive.
func (s *SRQ) submit(userContext uint64, sgl []verbs.SGE) error {
	err := s.q.PostRecv(&reactor.Recv{Tag: userContext, Sink: s}, sgl, unposted)
	if errors.Is(err, reactor.ErrRecvFull) {
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}
