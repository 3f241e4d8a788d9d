package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
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

// write writes somewhere into a slot. From the moment of acceptance on the model
// holds what the slot must hold when all has succeeded; writes to one slot may
// overtake nothing.
func (e *simEnd) write() {
	w, a := e.w, e.to
	i := w.r.IntN(simSlots)
	s := &a.slots[i]
	if s.cutBy != 0 && e.lastOK > s.cutBy {
		a.resync(i)
	}
	if s.torn || s.readers > 0 {
		return
	}
	if s.pending == 0 && a.alive() && w.r.one(4) {
		a.checkSlot(i, "before a WRITE")
	}
	n := w.size(simMaxMsg)
	kind, pieces := opWrite, 1
	imm := m32(w.r.Uint64())
	switch w.r.IntN(10) {
	case 0, 1, 2:
		kind, pieces = opWriteV, w.r.between(2, DefaultMaxSGE)
	case 3, 4, 5:
		kind = opWriteImm
		if w.r.one(3) {
			kind, pieces = opWriteImmV, w.r.between(2, DefaultMaxSGE)
		}
	case 6:
		if s.pending == 0 && w.r.one(3) {
			kind, n = opWriteSplit, w.r.between(simMaxMsg+1, simSlotSize)
		}
	}
	if (kind == opWriteImm || kind == opWriteImmV) && !e.mayDeliver() {
		return
	}
	at := slotAt(i) + w.r.IntN(simSlotSize-n+1)
	remote, through, ok := e.reach(i, at, n)
	if !ok {
		through.left()
		return
	}
	seed := w.r.Uint64()
	data := w.fill(n, seed)
	l := e.local(n, pieces).put(data)
	var f Future
	var err error
	switch kind {
	case opWriteV:
		f, err = e.c.WriteV(w.ended, l.slices, remote)
	case opWriteImm:
		f, err = e.c.WriteImm(w.ended, l.slices[0], remote, imm)
	case opWriteImmV:
		f, err = e.c.WriteImmV(w.ended, l.slices, remote, imm)
	default:
		f, err = e.c.Write(w.ended, l.slices[0], remote)
	}
	if !e.begin(kind, err) {
		through.left()
		l.free()
		return
	}
	copy(a.shadow[at:], data)
	s.pending++
	s.torn = kind == opWriteSplit // it may be cut short: nobody else comes near until that is known
	message, number := 0, w.nextOp
	if kind == opWriteImm || kind == opWriteImmV {
		e.out().push(simMsg{n: n, imm: imm, with: true})
		message = e.out().accepted
	}
	if w.r.one(2) {
		l.dropBuffers()
	}
	check := bytesMoved(n)
	e.follow(kind, f, func(r Result) error {
		through.left()
		l.free()
		e.out().okUpTo = max(e.out().okUpTo, message)
		if kind == opWriteSplit {
			s.torn = false
		}
		a.settleSlot(i)
		return check(r)
	}, func(err error) {
		through.left()
		l.free()
		s.torn = true
		a.settleSlot(i)
		if errors.Is(err, context.Canceled) { // cut short by a full queue
			s.cutBy = number
		}
	})
}

func m32(v uint64) uint32 { return uint32(v) }

// read reads from a slot, behind the writes under way, or from the source.
func (e *simEnd) read() {
	w, a := e.w, e.to
	n, pieces, kind := w.size(simMaxMsg), 1, opRead
	switch w.r.IntN(8) {
	case 0, 1, 2:
		pieces, kind = w.r.between(2, DefaultMaxSGE), opReadV
	case 3:
		if w.r.one(3) {
			n, kind = w.r.between(simMaxMsg+1, simSlotSize), opReadSplit
		}
	case 4:
		e.readSource(n)
		return
	}
	i := w.r.IntN(simSlots)
	s := &a.slots[i]
	at := slotAt(i) + w.r.IntN(simSlotSize-n+1)
	remote, ok := a.remote(at, n)
	if s.torn || !ok {
		return
	}
	want := append([]byte(nil), a.shadow[at:at+n]...)
	l := e.local(n, pieces)
	var f Future
	var err error
	if kind == opReadV {
		f, err = e.c.ReadV(w.ended, l.slices, remote)
	} else {
		f, err = e.c.Read(w.ended, l.slices[0], remote)
	}
	if !e.begin(kind, err) {
		l.free()
		return
	}
	if len(l.chunks) == 0 && w.r.one(12) {
		// Nobody looks, and the memory is given back while the device writes to it:
		// the pool finds out if it gives it to somebody else too early.
		l.free()
		if w.r.one(2) {
			s.readers++
			e.follow(kind, f, func(r Result) error { s.readers--; return bytesMoved(n)(r) }, func(error) { s.readers-- })
			return
		}
		e.giveUp(kind, f)
		return
	}
	s.readers++
	e.follow(kind, f, func(r Result) error {
		s.readers--
		defer l.free()
		if int(r.Bytes) != n {
			return fmt.Errorf("moved %d bytes, want %d", r.Bytes, n)
		}
		return l.same(want)
	}, func(error) { s.readers--; l.free() })
}

func (e *simEnd) readSource(n int) {
	w, peer := e.w, e.to.n
	if !e.to.alive() {
		return
	}
	at := w.r.IntN(simSourceSize - n) // never the very end: the trace could not tell whose address that is
	remote, err := peer.source.Remote(at, n)
	if err != nil {
		w.fail("describing the source of %s: %v", peer.name, err)
	}
	l := e.local(n, 1)
	f, err := e.c.Read(w.ended, l.slices[0], remote)
	if !e.begin(opReadSource, err) {
		l.free()
		return
	}
	want := append([]byte(nil), peer.source.Bytes()[at:at+n]...)
	e.follow(opReadSource, f, func(Result) error { defer l.free(); return l.same(want) }, func(error) { l.free() })
}

// atomic does one operation on a word: next says what becomes of it.
func (e *simEnd) atomic(kind opKind, do func(Remote, uint64) (Future, error), next func(uint64) uint64) {
	a := e.to
	i := e.w.r.IntN(simWords)
	remote, ok := a.remote(wordsAt+i*8, 8)
	if !ok {
		return
	}
	word := &a.words[i]
	found := word.states[len(word.states)-1]
	f, err := do(remote, found)
	if !e.begin(kind, err) {
		return
	}
	word.states = append(word.states, next(found))
	e.follow(kind, f, func(r Result) error {
		word.states = word.states[1:]
		if r.Value != found {
			return fmt.Errorf("found %d, want %d", r.Value, found)
		}
		return nil
	}, noMatter)
}

func (e *simEnd) compareAndSwap() {
	swap, miss := e.w.r.Uint64(), e.w.r.one(3)
	e.atomic(opCAS, func(m Remote, found uint64) (Future, error) {
		if miss {
			found++
		}
		return e.c.CompareAndSwap(e.w.ended, m, found, swap)
	}, func(found uint64) uint64 {
		if miss {
			return found
		}
		return swap
	})
}

func (e *simEnd) fetchAndAdd() {
	add := e.w.r.Uint64()
	e.atomic(opFAA, func(m Remote, _ uint64) (Future, error) {
		return e.c.FetchAndAdd(e.w.ended, m, add)
	}, func(found uint64) uint64 { return found + add })
}

// addShared adds 1 to a word that all connections add to: no two of those that
// succeed find the same value.
func (e *simEnd) addShared() {
	w, peer := e.w, e.to.n
	if !e.to.alive() {
		return
	}
	i := w.r.IntN(simShared)
	s := peer.shared[i]
	remote, err := peer.target.Remote(i*8, 8)
	if err != nil {
		w.fail("describing a counter of %s: %v", peer.name, err)
	}
	f, err := e.c.FetchAndAdd(w.ended, remote, 1)
	if !e.begin(opShared, err) {
		return
	}
	s.tried++
	if w.r.one(30) {
		e.giveUp(opShared, f)
		return
	}
	e.follow(opShared, f, func(r Result) error {
		s.added++
		if s.seen[r.Value] || r.Value >= s.tried {
			return fmt.Errorf("found %d, which another addition found too, or which is more than the %d tried", r.Value, s.tried)
		}
		s.seen[r.Value] = true
		return nil
	}, noMatter)
}

// wrongKey writes with a key that does not exist: refused at the peer, the
// connection fails, and not a byte is written.
func (e *simEnd) wrongKey() {
	a := e.to
	remote, ok := a.remote(slotAt(0), 100)
	if !ok {
		return
	}
	remote.RKey ^= 0x5a5a5a5a
	l := e.local(100, 1)
	f, err := e.c.Write(e.w.ended, l.slices[0], remote)
	if !e.begin(opWrongKey, err) {
		l.free()
		return
	}
	e.p.excuse("it wrote with a wrong key")
	e.follow(opWrongKey, f, func(Result) error { return fmt.Errorf("it succeeded") }, func(err error) {
		l.free()
		e.refusedKey(err)
	})
}

// refusedKey checks how a write with a key that opens nothing has failed.
func (e *simEnd) refusedKey(err error) {
	var wc *verbs.WCError
	if errors.As(err, &wc) && wc.Status != verbs.WCWRFlushErr && wc.Status != verbs.WCRemAccessErr && wc.Status != verbs.WCRetryExcErr {
		e.w.fail("%v: writing with a wrong key: %v", e.p, err)
	}
}
