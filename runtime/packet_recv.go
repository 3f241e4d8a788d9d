package runtime

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// packetSlot is one posted receive with its buffer: the 40 bytes of the GRH, then the datagram.
//
//	posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	   │ flushed              │ gone          │ gone
//	   └──────────────────────┴───────────────┴──> freed
type packetSlot struct {
	p   *PacketConn
	i   int
	buf Buffer
	// state counts the deliveries and releases of the slot: it is odd while a
	// Packet holds the slot. match increments state; so does Release, by CAS.
	state atomic.Uint64
	// The received datagram; written by the holder before match delivers the slot.
	n     int
	grh   bool
	srcQP uint32
	imm   uint32
	with  bool // imm is valid
	sge   [1]verbs.SGE
}

func (s *packetSlot) post() error {
	return s.p.q.PostRecv(&reactor.Recv{Sink: (*packetSink)(s.p), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// repost posts the receive again, or frees the buffer if p accepts no more.
func (s *packetSlot) repost() {
	if s.post() != nil {
		s.buf.drop()
	}
}

// makeSlots allocates the receive slots and their buffers.
func (p *PacketConn) makeSlots() error {
	p.slots = make([]packetSlot, p.opts.RecvCredits)
	for i := range p.slots {
		s := &p.slots[i]
		buf, err := p.rt.mem.allocOnNode(p.sh.node, verbs.GRHLen+p.MaxPacket())
		if err != nil {
			for k := range i {
				p.slots[k].buf.drop()
			}
			return err
		}
		s.p, s.i, s.buf = p, i, buf
		s.sge[0] = buf.Slice().SGE()
	}
	return nil
}

// Packet is a received datagram. Data is in a receive buffer, which is the caller's until Release.
type Packet struct {
	Data   []byte
	Imm    uint32 // host order, if HasImm
	HasImm bool

	slot   *packetSlot
	number uint64
}

// Release returns the buffer to the PacketConn for another datagram. Data
// must not be used after it. It returns ErrMessage if k was already released.
func (k Packet) Release() error {
	s := k.slot
	if s == nil || !s.state.CompareAndSwap(k.number, k.number+1) {
		return ErrMessage
	}
	s.repost()
	return nil
}

// packetWait is a waiter for a datagram.
type packetWait struct {
	hook    ring.Hook[packetWait]
	promise futures.Promise[Packet]
}

// wanted implements waiter.
func (w *packetWait) wanted() bool { return w.promise.Wanted() }

// giveUp implements waiter.
func (w *packetWait) giveUp() { w.promise.Settle(Packet{}, futures.ErrDiscarded) }

// InboxHook returns the link in PacketConn.waitIn.
func (w *packetWait) InboxHook() *ring.Hook[packetWait] { return &w.hook }

// Recv returns the future of the next datagram; datagrams go to callers in the
// order of their calls. A datagram that was delivered to a discarded future is
// lost. The error is the cause of the PacketConn's end. It does not block.
func (p *PacketConn) Recv() futures.Future[Packet] {
	select {
	case <-p.closed:
		return futures.Ready(Packet{}, p.cause.Load())
	default:
	}
	w := &packetWait{}
	promise, f := p.rt.datagrams.New(p.sh.r.Driver())
	w.promise = promise
	p.waitIn.Push(w)
	p.sh.r.Schedule(&p.task, false)
	return f
}

// RecvWait waits for the next datagram.
func (p *PacketConn) RecvWait(ctx context.Context) (Packet, error) {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return Packet{}, err
	}
	f := p.Recv()
	k, err := f.Await(asked)
	if err != nil {
		f.Discard()
		err = asked.Cause(ctx, err)
	}
	return k, err
}

// packetSink is the sink of a PacketConn's receives.
type packetSink PacketConn

// Complete implements reactor.Sink.
func (s *packetSink) Complete(_ SinkContext, r Result, err error) { (*PacketConn)(s).received(r, err) }

func (p *PacketConn) received(r Result, err error) {
	s := &p.slots[r.Tag]
	if err != nil {
		s.buf.drop()
		// A flush follows an earlier error, and OnFail reports a failed completion.
		// If the device refuses to post, only this code reports it.
		if _, completed := errors.AsType[*verbs.WCError](err); !completed && !p.gone {
			p.sh.r.Defer(func() { p.fail(err) })
		}
		return
	}
	if r.Bytes < verbs.GRHLen { // no known device does this; the data would be meaningless
		s.repost()
		return
	}
	s.n, s.grh, s.srcQP = int(r.Bytes)-verbs.GRHLen, r.Flags&verbs.WCWithGRH != 0, r.SrcQP
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	p.arrived = append(p.arrived, s.i)
	p.match()
}

// match delivers arrived datagrams to waiters. Holder only.
func (p *PacketConn) match() {
	for w := p.waitIn.TakeAll(); w != nil; {
		next := w.hook.Unlink()
		p.waits = append(p.waits, w)
		w = next
	}
	done := 0
	for ; done < len(p.waits); done++ {
		w := p.waits[done]
		switch cause := p.cause.Load(); {
		case !w.wanted():
			w.giveUp()
			continue
		case len(p.arrived) > 0:
			s := &p.slots[p.arrived[0]]
			p.arrived = append(p.arrived[:0], p.arrived[1:]...)
			w.promise.Settle(Packet{
				Data: s.buf.Bytes()[verbs.GRHLen : verbs.GRHLen+s.n], Imm: s.imm, HasImm: s.with, slot: s, number: s.state.Add(1),
			}, nil)
			continue
		case cause != nil:
			w.promise.Settle(Packet{}, cause)
			continue
		}
		break
	}
	p.waits = served(p.waits, done, &p.pruned)
}

// freeArrived frees the buffers of datagrams that were not received.
func (p *PacketConn) freeArrived() {
	for _, i := range p.arrived {
		p.slots[i].buf.drop()
	}
	p.arrived = nil
}

// disposePacket releases a datagram whose future was discarded.
func disposePacket(k Packet, err error) {
	if err != nil {
		return
	}
	_ = k.Release() // cannot fail: no other copy exists
}
