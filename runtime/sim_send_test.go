package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// operate starts one operation of a random kind, or several operations.
func (e *simEnd) operate() {
	switch r := e.w.r; r.IntN(15) {
	case 0:
		if r.one(2) {
			e.startSeveral()
		} else {
			e.doSeveral()
		}
	case 1:
		if e.window(); r.one(2) {
			e.sendInvalidate()
		}
	case 2:
		if r.one(600) {
			e.deadKey()
		}
		if r.one(400) {
			e.wrongKey()
		}
	default:
		e.start(e.plan(false))
	}
}

// plan() plans a random operation. If the argument plain is true, the operation is a WRITE or READ of
// one piece, because StartFromSink and StartAll have a faster path for these. If the device of the end was
// removed, the operation is an ATOMIC_WRITE. If the chosen operation is not possible now, plan() returns
// nil.
func (e *simEnd) plan(plain bool) *simPlan {
	r := e.w.r
	switch k := r.IntN(13); {
	case e.cutOff: // no memory can be registered on a removed device, and an ATOMIC_WRITE needs no local memory
		return e.atomicWrite()
	case plain && r.one(3):
		return e.read(true)
	case plain:
		return e.write(true)
	case k < 3:
		return e.send()
	case k < 6:
		return e.write(false)
	case k < 8:
		return e.read(false)
	case k == 8:
		return e.compareAndSwap()
	case k == 9:
		return e.fetchAndAdd()
	case k == 10:
		return e.addShared()
	case k == 11:
		return e.atomicWrite()
	}
	return e.flush()
}

// size() returns a random number of bytes to move. Usually the number is at most 300. Sometimes it is the
// maximum.
func (w *simWorld) size(maximum int) int {
	switch w.r.IntN(8) {
	case 0:
		return w.r.between(0, 8)
	case 1:
		return w.r.between(0, maximum)
	case 2:
		return maximum
	}
	return w.r.between(0, min(maximum, 300))
}

func bytesMoved(n int) func(Result) error {
	return func(r Result) error {
		if int(r.Bytes) != n {
			return fmt.Errorf("moved %d bytes, want %d", r.Bytes, n)
		}
		return nil
	}
}

func noMatter(error) {}

// send() plans a message, or returns nil if mayDeliver does not permit a message. Messages must arrive
// in the order in which they were accepted, without gaps.
func (e *simEnd) send() *simPlan {
	w := e.w
	most := simMsgSize
	if e.p.raw {
		most = simRawSize
	}
	if !e.mayDeliver() {
		return nil
	}
	m := simMsg{seed: w.r.Uint64(), n: w.size(most)}
	carried := m.n // the bytes that the operation moves
	if !e.p.raw {
		carried += frameSize
	}
	var p *simPlan
	var l *simLocal
	switch w.r.IntN(3) {
	case 0:
		b := bytes.Clone(w.fill(m.n, m.seed))
		if p = e.planned(opSendInline); e.c.headerSize()+m.n > e.c.q.Inline() {
			p.kind = opSendCopied
		}
		p.what = SendBytesOp(b)
		p.call = func() (Future, error) { return e.c.SendBytes(w.ended, b) }
		p.begun = func() { clear(b) } // SendBytes has copied b
	case 1:
		p = e.planned(opSend)
		l = e.local(m.n, 1).put(w.fill(m.n, m.seed))
		p.what = SendOp(l.slices[0])
		p.call = func() (Future, error) { return e.c.Send(w.ended, l.slices[0]) }
	default:
		p = e.planned(opSendV)
		l = e.local(m.n, w.r.between(2, DefaultMaxSGE)).put(w.fill(m.n, m.seed))
		p.what = SendVOp(l.slices)
		p.call = func() (Future, error) { return e.c.Start(w.ended, new(SendVOp(l.slices))) }
	}
	out := e.out()
	out.push(m)
	number := out.accepted
	if l != nil && w.r.one(2) {
		p.begun = l.dropBuffers
	}
	if (l == nil || len(l.chunks) == 0) && w.r.one(40) {
		p.drop = l.freeIf
	}
	p.undo = func() { out.unpush(); l.freeIf() }
	check := bytesMoved(carried)
	p.ok = func(r Result) error {
		out.okUpTo = number
		l.freeIf()
		return check(r)
	}
	p.bad = func(error) { l.freeIf() }
	return p
}

// mayDeliver reports whether the end may send a message now. A message needs a receive of the peer,
// and the peer of a raw connection may have no receive posted. In this case the peer's device answers
// with RNR NAKs, and the sending device repeats the message without a limit. If packets are lost in this
// time, the retries for lost packets may be used up, because an RNR NAK does not reset the count of these
// retries (as in Soft-RoCE). So the connection may fail. Therefore mayDeliver rarely permits a message
// without a receive, and then excuses the connection.
func (e *simEnd) mayDeliver() bool {
	peer := e.p.ends[1-e.side]
	if !e.p.raw || peer != nil && peer.room() > len(e.out().sent) {
		return true
	}
	if !e.w.r.one(20) {
		return false
	}
	e.p.excuse("it sent to a receiver that was not ready")
	return true
}

// room() returns how many messages to this end of a raw connection find a posted receive.
func (e *simEnd) room() int {
	if s := e.n.srq; e.shares() {
		return s.posted - (s.due() - len(e.in().sent))
	}
	return len(e.recvs)
}

func (l *simLocal) freeIf() {
	if l != nil {
		l.free()
	}
}

// simRawSize is the size in bytes of the largest message of a raw connection. Each receive has at least
// this size.
const simRawSize = 1500

// postRecv posts a receive of one to three pieces on a raw connection.
func (e *simEnd) postRecv() {
	w := e.w
	n := simRawSize + w.r.IntN(200)
	l := e.local(n, w.r.between(1, 3))
	f, err := e.c.PostRecv(l.slices...)
	if !e.begin(opPostRecv, err) {
		l.free()
		return
	}
	e.recvs = append(e.recvs, e.rawRecv(l, f))
}

func (e *simEnd) rawRecv(l *simLocal, f Future) *simOp {
	return &simOp{id: e.w.nextOp, kind: opPostRecv, e: e, f: f, bad: func(error) { l.free() }, ok: func(r Result) error {
		defer l.free()
		return e.receivedRaw(l, r)
	}}
}

// receivedRaw compares a completed receive with the next message to this end.
func (e *simEnd) receivedRaw(l *simLocal, r Result) error {
	want, ok := e.in().pop()
	imm := r.Flags&verbs.WCWithImm != 0
	switch {
	case !ok:
		return fmt.Errorf("received a message of %d bytes that was not sent, or that was received before", r.Bytes)
	case imm != want.with || imm && r.Imm != want.imm || int(r.Bytes) != want.n:
		return fmt.Errorf("message %d: WITH_IMM %t, immediate data %d, %d bytes; want %+v", e.in().received-1, imm, r.Imm, r.Bytes, want)
	case imm:
		return nil
	}
	var shut *Window
	if want.shuts != nil && r.Flags&verbs.WCWithInv != 0 && r.Imm == want.shuts.at.RKey {
		shut = want.shuts.w
	}
	if err := e.shutBy(want, shut); err != nil {
		return err
	}
	return l.prefix(e.w.fill(want.n, want.seed))
}

// prefix() returns an error if the pieces, in order, do not begin with the bytes b.
func (l *simLocal) prefix(b []byte) error {
	at := 0
	for _, v := range l.views {
		for i := 0; i < len(v) && at < len(b); i++ {
			if v[i] != b[at] {
				return fmt.Errorf("byte %d is 0x%02x, want 0x%02x", at, v[i], b[at])
			}
			at++
		}
	}
	return nil
}

// The following functions take the messages of a managed connection.

// simHeld is a message that has not been released yet.
type simHeld struct {
	m     Message
	want  simMsg
	until time.Duration // the virtual time at which the message is released
}

// takeMessages takes the received messages, in the order of the calls of Recv.
func (e *simEnd) takeMessages() {
	for len(e.wants) > 0 {
		m, err, ok := e.wants[0].Poll()
		if !ok {
			break
		}
		e.wants = e.wants[1:]
		e.message(m, err)
	}
}

// giveUpWaiting sometimes discards the future of a Recv, or awaits the future of a Recv with a context
// that has ended.
func (e *simEnd) giveUpWaiting() {
	w := e.w
	if n := len(e.wants); n > 0 && w.r.one(40) {
		// The newest future can be discarded at any time. An older future can be discarded only while
		// it has no message. Otherwise its message would be received after later messages, which newer
		// futures already have.
		if k := w.r.IntN(n); k == n-1 || !e.wants[k].Settled() {
			e.wants[k].Discard()
			e.wants = append(e.wants[:k], e.wants[k+1:]...)
			w.counts[opRecv][outcomeGivenUp]++
		}
	}
	if n := len(e.wants); n > 0 && w.r.one(40) {
		if m, err := e.wants[0].Await(w.ended); !errors.Is(err, w.ended.Err()) {
			e.message(m, err)
			e.wants = e.wants[1:]
		}
	}
}

func (e *simEnd) message(m Message, err error) {
	w := e.w
	w.trace.note(e.p.id, uint64(e.side), uint64(errorClass(err)), uint64(len(m.Data)), uint64(m.Imm))
	if err != nil {
		w.counts[opRecv][outcomeFailed]++
		if e.c.Err() == nil {
			w.fail("%v: end %d: Recv failed with %v, but the connection has not failed", e.p, e.side, err)
		}
		e.sawEnd = e.sawEnd || !e.closing
		return
	}
	w.counts[opRecv][outcomeOK]++
	if e.sawEnd {
		w.fail("%v: end %d: Recv returned a message after a Recv had failed", e.p, e.side)
	}
	want, ok := e.in().pop()
	if !ok {
		w.fail("%v: end %d received a message that was not sent, or that was received before: %+v", e.p, e.side, m)
	}
	e.sameMessage(m, want, "when it was received")
	if err := e.shutBy(want, m.Invalidated); err != nil {
		w.fail("%v: end %d: %v", e.p, e.side, err)
	}
	until := w.now()
	if !w.r.one(3) {
		until += w.r.span(0, 2*time.Millisecond)
	}
	e.held = append(e.held, simHeld{m, want, until})
}

func (e *simEnd) sameMessage(m Message, want simMsg, when string) {
	number := e.in().received - 1
	if m.HasImm != want.with || want.with && (m.Imm != want.imm || m.Written != want.n) || !want.with && len(m.Data) != want.n {
		e.w.fail("%v: end %d, message %d, %s: HasImm %t, Imm %d, %d bytes of data, Written %d; want %+v", e.p, e.side, number, when, m.HasImm, m.Imm, len(m.Data), m.Written, want)
	}
	if !want.with && !bytes.Equal(m.Data, e.w.fill(want.n, want.seed)) {
		e.w.fail("%v: end %d, message %d, %s: the message has other bytes than were sent", e.p, e.side, number, when)
	}
}

// releaseHeld releases the messages that were held long enough, or all messages if all is true. It
// checks that the bytes of each message have not changed since the message was received.
func (e *simEnd) releaseHeld(all bool) {
	kept := e.held[:0]
	for _, h := range e.held {
		if !all && h.until > e.w.now() {
			kept = append(kept, h)
			continue
		}
		e.sameMessage(h.m, h.want, "when it was released")
		if err := h.m.Release(); err != nil {
			e.w.fail("releasing a message: %v", err)
		}
		if err := h.m.Release(); !errors.Is(err, ErrMessage) {
			e.w.fail("releasing a message twice: %v, want %v", err, ErrMessage)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
}
