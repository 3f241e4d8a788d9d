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

// packetSlot is one receive with its buffer. The first 40 bytes of the buffer are for the GRH, and the
// rest is for the datagram. In the diagram, p is the PacketConn.
//
//	posted ──completion──> arrived ──Recv──> held ──Release──> posted
//	   │ flushed              │ p ended       │ Release after p ended
//	   └──────────────────────┴───────────────┴──> freed
type packetSlot struct {
	p   *PacketConn
	i   int
	buf Buffer
	// state counts the deliveries and releases of the slot. Deliveries and releases alternate, so
	// state is odd while a Packet holds the slot. match() increments state when it delivers a
	// Packet. Packet.Release increments state by a CAS, on any goroutine.
	state atomic.Uint64
	// The next four fields describe the received datagram. Only the holder of the turn (the goroutine
	// that runs the reactor) uses them, before match() delivers the datagram.
	n    int
	from packetFrom
	imm  uint32
	with bool // imm is valid
	sge  [1]verbs.SGE
}

// packetFrom is where a datagram comes from, as its completion says.
type packetFrom struct {
	srcQP uint32
	slid  uint16 // LID of the sender
	sl    uint8  // service level
	bits  uint8  // of the LID that the datagram was sent to
	grh   bool   // the buffer begins with a GRH
}

func (s *packetSlot) post() error {
	return s.p.q.PostRecv(&reactor.Recv{Sink: (*packetSink)(s.p), Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// repost posts the receive again. If the queue accepts no receives any more, repost frees the buffer.
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
		buf, err := p.rt.mem.allocOnNode(nil, p.sh.node, verbs.GRHLen+int(p.sh.r.MaxDatagram()))
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

// Packet is a received datagram. Data is part of a receive buffer. The buffer belongs to the caller
// until Release.
type Packet struct {
	Data   []byte
	Imm    uint32 // in host byte order; valid if HasImm
	HasImm bool

	slot   *packetSlot
	number uint64
	from   packetFrom
}

// Release returns the buffer to the PacketConn for another datagram. After that, the caller must not
// use Data. If k was released before, Release returns ErrMessage.
func (k Packet) Release() error {
	s := k.slot
	if s == nil || !s.state.CompareAndSwap(k.number, k.number+1) {
		return ErrMessage
	}
	s.repost()
	return nil
}

// packetWait is a call of Recv whose future is not settled yet.
type packetWait struct {
	hook    ring.Hook[packetWait]
	promise futures.Promise[Packet]
}

// wanted implements waiter.
func (w *packetWait) wanted() bool { return w.promise.Wanted() }

// giveUp implements waiter.
func (w *packetWait) giveUp() { w.promise.Settle(Packet{}, futures.ErrDiscarded) }

// InboxHook returns the link to the next packetWait in PacketConn.waitIn.
func (w *packetWait) InboxHook() *ring.Hook[packetWait] { return &w.hook }

// Recv returns the future of the next datagram. If several futures wait, the oldest future gets the
// next datagram. If a future is discarded after it has got a datagram, the datagram is lost. If the
// PacketConn ends and no datagram is left, the future fails with the cause (see Err). Recv does not
// block.
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

// RecvWait waits for the next datagram, until ctx ends.
func (p *PacketConn) RecvWait(ctx context.Context) (Packet, error) {
	asked, err := reactor.Unended(ctx)
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

// packetSink is a reactor.Sink: it gets the results of a PacketConn's receives.
type packetSink PacketConn

// Complete implements reactor.Sink.
func (s *packetSink) Complete(_ SinkContext, r Result, err error) { (*PacketConn)(s).received(r, err) }

func (p *PacketConn) received(r Result, err error) {
	s := &p.slots[r.Tag]
	if err != nil {
		s.buf.drop()
		// A *WCError means that the receive failed or was flushed. The queue reports this itself,
		// to the function given to OnFail or OnFlush. Any other error means that the device refused
		// to post the receive. Only this code notices such an error, so it must end p.
		if _, completed := errors.AsType[*verbs.WCError](err); !completed && !p.gone {
			p.sh.r.Defer(func() { p.fail(err) })
		}
		return
	}
	if r.Bytes < verbs.GRHLen { // shorter than a GRH: no known device reports such a length
		s.repost()
		return
	}
	s.n = int(r.Bytes) - verbs.GRHLen
	s.from = packetFrom{srcQP: r.SrcQP, slid: r.SLID, sl: r.SL, bits: r.DLIDPathBits, grh: r.Flags&verbs.WCWithGRH != 0}
	s.imm, s.with = r.Imm, r.Flags&verbs.WCWithImm != 0
	p.arrived = append(p.arrived, s.i)
	p.match()
}

// PacketConn.match delivers arrived datagrams to the calls of Recv that wait. If no datagram is left
// and p has ended, match settles the remaining calls with the cause. Only the holder of the turn
// calls match.
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
				Data: s.buf.Bytes()[verbs.GRHLen : verbs.GRHLen+s.n], Imm: s.imm, HasImm: s.with, slot: s, number: s.state.Add(1), from: s.from,
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

// freeArrived frees the buffers of the datagrams that were not delivered to a call of Recv.
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
	_ = k.Release() // cannot fail: no other code has the Packet
}
