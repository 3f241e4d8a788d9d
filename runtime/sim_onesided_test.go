package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// remote names n bytes at offset at of the peer's area.
func (a *simArea) remote(at, n int) (Remote, bool) {
	if !a.alive() {
		return Remote{}, false
	}
	r, err := a.n.target.Remote(a.at+at, n)
	if err != nil {
		a.n.w.fail("describing memory of %s: %v", a.n.name, err)
	}
	return r, true
}

// write writes somewhere into a slot. As soon as it is planned the model holds what the
// slot must hold when all has succeeded; writes to one slot may overtake nothing.
func (e *simEnd) write(plain bool) *simPlan {
	w, a := e.w, e.to
	i := w.r.IntN(simSlots)
	s := &a.slots[i]
	if s.cutBy != 0 && e.lastOK > s.cutBy {
		a.resync(i)
	}
	if s.torn || s.readers > 0 {
		return nil
	}
	if s.pending == 0 && a.alive() && w.r.one(4) {
		a.checkSlot(i, "before a WRITE")
	}
	n := w.size(simMaxMsg)
	kind, pieces := opWrite, 1
	imm := m32(w.r.Uint64())
	switch k := w.r.IntN(10); {
	case plain:
	case k < 3:
		kind, pieces = opWriteV, w.r.between(2, DefaultMaxSGE)
	case k < 6:
		kind = opWriteImm
		if w.r.one(3) {
			kind, pieces = opWriteImmV, w.r.between(2, DefaultMaxSGE)
		}
	case k == 6:
		if s.pending == 0 && w.r.one(3) {
			kind, n = opWriteSplit, w.r.between(simMaxMsg+1, simSlotSize)
		}
	}
	with := kind == opWriteImm || kind == opWriteImmV
	if with && !e.mayDeliver() {
		return nil
	}
	at := slotAt(i) + w.r.IntN(simSlotSize-n+1)
	remote, through, ok := e.reach(i, at, n)
	if !ok {
		through.left()
		return nil
	}
	data := w.fill(n, w.r.Uint64())
	l := e.local(n, pieces).put(data)
	p := e.planned(kind)
	switch kind {
	case opWriteV:
		p.what = WriteVOp(l.slices, remote)
		p.call = func() (Future, error) { return e.c.Start(w.ended, new(WriteVOp(l.slices, remote))) }
	case opWriteImm:
		p.what = WriteOp(l.slices[0], remote).Imm(imm)
		p.call = func() (Future, error) { return e.c.Start(w.ended, new(WriteOp(l.slices[0], remote).Imm(imm))) }
	case opWriteImmV:
		p.what = WriteVOp(l.slices, remote).Imm(imm)
		p.call = func() (Future, error) { return e.c.Start(w.ended, new(WriteVOp(l.slices, remote).Imm(imm))) }
	default:
		p.what = WriteOp(l.slices[0], remote)
		p.call = func() (Future, error) { return e.c.Write(w.ended, l.slices[0], remote) }
	}
	before := bytes.Clone(a.shadow[at : at+n])
	copy(a.shadow[at:], data)
	s.pending++
	s.torn = kind == opWriteSplit // it may be cut short: nobody else comes near until that is known
	message := 0
	if with {
		e.out().push(simMsg{n: n, imm: imm, with: true})
		message = e.out().accepted
	}
	p.undo = func() {
		through.left()
		l.free()
		copy(a.shadow[at:], before)
		s.pending--
		s.torn = false
		if with {
			e.out().unpush()
		}
	}
	if w.r.one(2) {
		p.begun = l.dropBuffers
	}
	check := bytesMoved(n)
	p.ok = func(r Result) error {
		through.left()
		l.free()
		e.out().okUpTo = max(e.out().okUpTo, message)
		if kind == opWriteSplit {
			s.torn = false
		}
		a.settleSlot(i)
		return check(r)
	}
	p.bad = func(err error) {
		through.left()
		l.free()
		s.torn = true
		a.settleSlot(i)
		if errors.Is(err, context.Canceled) { // cut short by a full queue
			s.cutBy = p.id
		}
	}
	return p
}

func m32(v uint64) uint32 { return uint32(v) }

// read reads from a slot, behind the writes under way, or from the source.
func (e *simEnd) read(plain bool) *simPlan {
	w, a := e.w, e.to
	n, pieces, kind := w.size(simMaxMsg), 1, opRead
	switch k := w.r.IntN(8); {
	case plain:
	case k < 3:
		pieces, kind = w.r.between(2, DefaultMaxSGE), opReadV
	case k == 3:
		if w.r.one(3) {
			n, kind = w.r.between(simMaxMsg+1, simSlotSize), opReadSplit
		}
	case k == 4:
		return e.readSource(n)
	}
	i := w.r.IntN(simSlots)
	s := &a.slots[i]
	at := slotAt(i) + w.r.IntN(simSlotSize-n+1)
	remote, ok := a.remote(at, n)
	if s.torn || !ok {
		return nil
	}
	want := bytes.Clone(a.shadow[at : at+n])
	l := e.local(n, pieces)
	p := e.planned(kind)
	if kind == opReadV {
		p.what = ReadVOp(l.slices, remote)
		p.call = func() (Future, error) { return e.c.Start(w.ended, new(ReadVOp(l.slices, remote))) }
	} else {
		p.what = ReadOp(l.slices[0], remote)
		p.call = func() (Future, error) { return e.c.Read(w.ended, l.slices[0], remote) }
	}
	s.readers++
	p.undo = func() { s.readers--; l.free() }
	p.ok = func(r Result) error {
		s.readers--
		defer l.free()
		if int(r.Bytes) != n {
			return fmt.Errorf("moved %d bytes, want %d", r.Bytes, n)
		}
		return l.same(want)
	}
	p.bad = func(error) { s.readers--; l.free() }
	if len(l.chunks) == 0 && w.r.one(12) {
		// Nobody looks, and the memory is given back while the device writes to it:
		// the pool finds out if it gives it to somebody else too early.
		p.begun = l.free
		p.ok = func(r Result) error { s.readers--; return bytesMoved(n)(r) }
		if w.r.one(2) {
			p.drop = func() { s.readers-- }
		}
	}
	return p
}

func (e *simEnd) readSource(n int) *simPlan {
	w, peer := e.w, e.to.n
	if !e.to.alive() {
		return nil
	}
	at := w.r.IntN(simSourceSize - n) // never the very end: the trace could not tell whose address that is
	remote, err := peer.source.Remote(at, n)
	if err != nil {
		w.fail("describing the source of %s: %v", peer.name, err)
	}
	l := e.local(n, 1)
	want := bytes.Clone(peer.source.Bytes()[at : at+n])
	p := e.planned(opReadSource)
	p.what = ReadOp(l.slices[0], remote)
	p.call = func() (Future, error) { return e.c.Read(w.ended, l.slices[0], remote) }
	p.undo = l.free
	p.ok = func(Result) error { defer l.free(); return l.same(want) }
	p.bad = func(error) { l.free() }
	return p
}
