package runtime

import (
	"bytes"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// operate does one thing of any kind.
func (e *simEnd) operate() {
	switch r := e.w.r; r.IntN(15) {
	case 0:
		if r.one(2) {
			e.doAll()
		} else {
			e.doWait()
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

// plan plans an operation of any kind; of one that sinks and batches have a way of their
// own for if it is to be plain. It is nil if there is none just now.
func (e *simEnd) plan(plain bool) *simPlan {
	r := e.w.r
	switch k := r.IntN(13); {
	case e.cutOff: // nobody has told us yet; memory cannot be registered any more
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

// size is how many bytes an operation moves: mostly few, sometimes the most.
func (w *simWorld) size(most int) int {
	switch w.r.IntN(8) {
	case 0:
		return w.r.between(0, 8)
	case 1:
		return w.r.between(0, most)
	case 2:
		return most
	}
	return w.r.between(0, min(most, 300))
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

// send sends a message. What was accepted must arrive, in this order, if
// anything behind it does.
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
	carried := m.n // what the operation counts
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
		p.begun = func() { clear(b) } // ours again
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

// mayDeliver tells whether to send something that takes a receive. On a raw
// connection nobody sees to it that there is one. A receiver that is not ready is
// retried for ever, but while that lasts nothing is acknowledged, and what the
// link loses meanwhile uses the other retries up (as in Soft-RoCE, where an RNR NAK
// does not reload them): so that is done only where the connection may fail.
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

// room is how many messages to a raw connection find a receive.
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

// simRawSize is the largest message of a raw connection here; receives take at
// least that.
const simRawSize = 1500

// postRecv posts a receive of a raw connection, in up to three pieces.
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

// receivedRaw compares what a receive took with the next message on its way here.
func (e *simEnd) receivedRaw(l *simLocal, r Result) error {
	want, ok := e.in().pop()
	imm := r.Flags&verbs.WCWithImm != 0
	switch {
	case !ok:
		return fmt.Errorf("received %d bytes that nobody sent, or twice", r.Bytes)
	case imm != want.with || imm && r.Imm != want.imm || int(r.Bytes) != want.n:
		return fmt.Errorf("message %d: immediate %t %d, %d bytes; want %+v", e.in().received-1, imm, r.Imm, r.Bytes, want)
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

// prefix compares the beginning of the pieces with b.
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
