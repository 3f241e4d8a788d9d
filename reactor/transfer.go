package reactor

import (
	"context"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Transfer is a WRITE or READ of one piece: what a Send and its Payload say, without
// what the other requests need. Most requests are of this kind.
type Transfer struct {
	Opcode verbs.WROpcode  // RDMA_WRITE, RDMA_WRITE_WITH_IMM or RDMA_READ
	Flags  verbs.SendFlags // as in Send; SOLICITED only with an immediate
	Imm    uint32          // host order
	Remote uint64
	RKey   uint32
	Local  verbs.SGE // of no bytes: no memory

	Lease Lease // as in Send
	Sink  Sink
	Tag   uint64
}

// Transfer is Submit for a transfer. What t points to is the caller's again when it
// returns.
func (q *Queue) Transfer(ctx context.Context, t *Transfer, m Manner) (f Future, err error) {
	if ctx == nil {
		return f, ErrNilContext
	}
	i, err := q.admit(ctx, t, m)
	if err != nil {
		return f, err
	}
	if t.Sink == nil {
		_, f = q.r.futures.NewIn(&q.tab.slots[i].seat, q.r.driver)
	}
	q.fillTransfer(i, t, kindOf(t.Opcode))
	q.sendStack.Push(i)
	q.submit(m)
	return f, nil
}

// admit checks a transfer and takes a slot for it.
func (q *Queue) admit(ctx context.Context, t *Transfer, m Manner) (uint32, error) {
	if k := kindOf(t.Opcode); !q.transfers(t, k) {
		return 0, q.noTransfer(t, k)
	}
	return q.enter(ctx, m)
}

// transfers reports whether t, of kind k, is a transfer of this queue.
func (q *Queue) transfers(t *Transfer, k Kind) bool {
	return (k == KindWrite || k == KindRead) && q.requests.Has(t.Opcode) && t.Local.Length <= q.r.maxMessage &&
		(t.Flags == 0 || t.mayFlag() && (t.Flags&verbs.SendInline == 0 || k == KindWrite && uint64(t.Local.Length) <= uint64(q.inline)))
}

// mayFlag reports whether a transfer may have the flags of t, but for the length of INLINE.
func (t *Transfer) mayFlag() bool {
	return t.Flags&^(verbs.SendFence|verbs.SendSolicited|verbs.SendInline) == 0 && (t.Flags&verbs.SendSolicited == 0 || t.Opcode.HasImm())
}

// noTransfer says why not.
func (q *Queue) noTransfer(t *Transfer, k Kind) error {
	if k != KindWrite && k != KindRead || !q.requests.Has(t.Opcode) {
		return fmt.Errorf("%w: %v is no transfer of a queue of type %v", ErrRequest, t.Opcode, q.cfg.Type)
	}
	switch {
	case t.Local.Length > q.r.maxMessage:
		return tooLong(uint64(t.Local.Length), uint64(q.r.maxMessage))
	case !t.mayFlag():
		return fmt.Errorf("%w: flags %v are none of %v", ErrRequest, t.Flags, t.Opcode)
	}
	return q.checkInline(k, t.Opcode, t.Local.Length)
}

// fillTransfer writes slot i, which is the caller's, but for its future. The transfer is
// of kind k.
func (q *Queue) fillTransfer(i uint32, t *Transfer, k Kind) {
	sl := &q.tab.slots[i]
	sl.kind, sl.opcode, q.tab.bytes[i] = k, uint8(t.Opcode), t.Local.Length
	sl.sink, sl.lease, sl.tag = t.Sink, t.Lease, t.Tag
	w, at := &q.tab.sendWR[i], int(i)*q.tab.maxSGE
	w.WRID = packWRID(q.id, i, sl.gen, k)
	w.SGList, w.NumSGE = q.tab.sgeAddr+uint64(at)*verbs.SizeofSGE, 0
	if t.Local.Length > 0 {
		e := &q.tab.sges[at]
		e.Addr, e.Length, e.LKey = t.Local.Addr, t.Local.Length, t.Local.LKey
		w.NumSGE = 1
	}
	w.Opcode, w.Flags, w.ImmData = t.Opcode, t.Flags, verbs.NetworkOrder(t.Imm)
	w.SetRDMA(t.Remote, t.RKey)
	if q.rec != nil {
		q.rec.submitted(q.r, i)
	}
}
