package runtime

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// remote returns the descriptor of bytes [at, at+n) of the area. It returns false if the area's
// memory is gone.
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

// write() plans a WRITE into a random slot, or returns nil if no WRITE is possible now. If plain is
// true, the WRITE has one piece and no immediate data. WRITEs take effect in the order in which they
// are planned. So write() changes the model at once to the content after the WRITE.
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
	// If the queue becomes full, only some fragments of a split WRITE are posted. So no other operation
	// may use the slot until the result of the split WRITE is known.
	s.torn = kind == opWriteSplit
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
		if errors.Is(err, errGivenUp) { // the queue was full before all fragments were posted
			s.cutBy = p.id
		}
	}
	return p
}

func m32(v uint64) uint32 { return uint32(v) }

// read() plans a READ of a random slot or of the region simNode.source, or returns nil if the READ is
// not possible now. If plain is true, the READ has one piece. A READ of a slot must find the effect of
// all WRITEs that were planned before the READ.
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
		// Release the buffer while the device may still write to it, and ignore the data. If the
		// pool reuses the buffer too early, the device overwrites the buffer's poison, and the pool
		// detects the overwritten poison.
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
	at := w.r.IntN(simSourceSize - n)
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

// The following operations need no local memory: atomics, ATOMIC_WRITE, and FLUSH.

// word() plans one operation on a random word of the peer's area. The model knows the value that the
// operation will find in the word (found). The call newOp(remote, found) returns the operation, and a
// function that starts the operation. The call newValue(found) returns the value of the word after the
// operation.
func (e *simEnd) word(kind opKind, newOp func(Remote, uint64) (Op, func() (Future, error)), newValue func(uint64) uint64) *simPlan {
	a := e.to
	i := e.w.r.IntN(simWords)
	remote, ok := a.remote(wordsAt+i*8, 8)
	if !ok {
		return nil
	}
	word := &a.words[i]
	found := word.states[len(word.states)-1]
	p := e.planned(kind)
	p.what, p.call = newOp(remote, found)
	word.states = append(word.states, newValue(found))
	p.undo = func() { word.states = word.states[:len(word.states)-1] }
	p.ok = func(r Result) error {
		word.states = word.states[1:]
		if kind != opAtomicWrite && r.Value != found {
			return fmt.Errorf("the operation found %d in the word, want %d", r.Value, found)
		}
		return nil
	}
	return p
}

func (e *simEnd) compareAndSwap() *simPlan {
	w := e.w
	swap, miss := w.r.Uint64(), w.r.one(3)
	return e.word(opCAS, func(m Remote, found uint64) (Op, func() (Future, error)) {
		if miss {
			found++
		}
		return CompareAndSwapOp(m, found, swap), func() (Future, error) { return e.c.Start(w.ended, new(CompareAndSwapOp(m, found, swap))) }
	}, func(found uint64) uint64 {
		if miss {
			return found
		}
		return swap
	})
}

func (e *simEnd) fetchAndAdd() *simPlan {
	w := e.w
	add := w.r.Uint64()
	return e.word(opFAA, func(m Remote, _ uint64) (Op, func() (Future, error)) {
		return FetchAndAddOp(m, add), func() (Future, error) { return e.c.Start(w.ended, new(FetchAndAddOp(m, add))) }
	}, func(found uint64) uint64 { return found + add })
}

// atomicWrite plans an ATOMIC_WRITE of a random value to a word.
func (e *simEnd) atomicWrite() *simPlan {
	w := e.w
	value := w.r.Uint64()
	return e.word(opAtomicWrite, func(m Remote, _ uint64) (Op, func() (Future, error)) {
		return AtomicWriteOp(m, value), func() (Future, error) { return e.c.Start(w.ended, new(AtomicWriteOp(m, value))) }
	}, func(uint64) uint64 { return value })
}

// addShared plans a FETCH_ADD of 1 to a shared word of the peer's node. All connections add to this
// word, and no two additions may find the same value.
func (e *simEnd) addShared() *simPlan {
	w, peer := e.w, e.to.n
	if !e.to.alive() {
		return nil
	}
	i := w.r.IntN(simShared)
	s := peer.shared[i]
	remote, err := peer.target.Remote(i*8, 8)
	if err != nil {
		w.fail("describing a shared word of %s: %v", peer.name, err)
	}
	p := e.planned(opShared)
	p.what = FetchAndAddOp(remote, 1)
	p.call = func() (Future, error) { return e.c.Start(w.ended, new(FetchAndAddOp(remote, 1))) }
	s.tried++
	p.undo = func() { s.tried-- }
	if w.r.one(30) {
		p.drop = func() {}
	}
	p.ok = func(r Result) error {
		s.added++
		if s.seen[r.Value] || r.Value >= s.tried {
			return fmt.Errorf("the addition found %d, want a value below %d that no other addition has found", r.Value, s.tried)
		}
		s.seen[r.Value] = true
		return nil
	}
	return p
}

// flush() plans a FLUSH of a slot. After a successful FLUSH, the earlier WRITEs to the slot must be
// visible.
func (e *simEnd) flush() *simPlan {
	w, a := e.w, e.to
	i := w.r.IntN(simSlots)
	remote, ok := a.remote(slotAt(i), simSlotSize)
	if !ok {
		return nil
	}
	p := e.planned(opFlush)
	p.what = FlushOp(remote, verbs.FlushGlobal)
	p.call = func() (Future, error) { return e.c.Start(w.ended, new(FlushOp(remote, verbs.FlushGlobal))) }
	p.ok = func(Result) error {
		if s := &a.slots[i]; s.pending == 0 && !s.torn && a.alive() {
			a.checkSlot(i, "after a FLUSH")
		}
		return nil
	}
	return p
}

// simLocal is the local memory of one operation. Each piece is a pool buffer, or a chunk of the
// region simNode.scratch.
type simLocal struct {
	e      *simEnd
	slices []Slice
	views  [][]byte
	bufs   []Buffer
	chunks []int
}

// local() takes n bytes of local memory, in the given number of pieces.
func (e *simEnd) local(n, pieces int) *simLocal {
	l := &simLocal{e: e}
	for k := range pieces {
		size := n / (pieces - k)
		if k < pieces-1 && size > 1 {
			size = e.w.r.between(1, size)
		}
		n -= size
		if size <= simChunk && len(e.n.chunks) > 0 && (e.near && !e.w.r.one(6) || e.w.r.one(4)) {
			i, b := e.n.chunk()
			s, err := e.n.scratch.Slice(i*simChunk, size)
			if err != nil {
				e.w.fail("making a slice of the region scratch: %v", err)
			}
			l.chunks, l.slices, l.views = append(l.chunks, i), append(l.slices, s), append(l.views, b[:size])
			continue
		}
		buf, err := e.n.rt.Alloc(size)
		if err != nil {
			e.w.fail("allocating a buffer of %d bytes: %v", size, err)
		}
		l.bufs, l.slices, l.views = append(l.bufs, buf), append(l.slices, buf.Slice()), append(l.views, buf.Bytes())
	}
	return l
}

// put() copies b into the pieces, in order, and returns l.
func (l *simLocal) put(b []byte) *simLocal {
	for _, v := range l.views {
		b = b[copy(v, b):]
	}
	return l
}

// same() returns an error if the pieces, in order, do not hold b.
func (l *simLocal) same(b []byte) error {
	at := 0
	for _, v := range l.views {
		for i := range v {
			if v[i] != b[at] {
				return fmt.Errorf("byte %d is 0x%02x, want 0x%02x", at, v[i], b[at])
			}
			at++
		}
	}
	return nil
}

// dropBuffers releases the buffers. The device may still use a buffer, because the pool reuses the buffer
// only after the operations on the buffer have completed.
func (l *simLocal) dropBuffers() {
	for _, b := range l.bufs {
		if err := b.Release(); err != nil {
			l.e.w.fail("releasing a buffer: %v", err)
		}
		if err := b.Release(); !errors.Is(err, ErrReleased) {
			l.e.w.fail("releasing a buffer twice: %v, want %v", err, ErrReleased)
		}
	}
	l.bufs = nil
}

// free() releases the buffers and the chunks. If l has chunks, call free() only after the operation has
// completed or was refused.
func (l *simLocal) free() {
	l.dropBuffers()
	for _, i := range l.chunks {
		l.e.n.putChunk(i)
	}
	l.chunks = nil
}

// chunk() takes a free chunk of the region n.scratch. The chunk must still be full of poison.
func (n *simNode) chunk() (int, []byte) {
	i := n.chunks[len(n.chunks)-1]
	n.chunks = n.chunks[:len(n.chunks)-1]
	b := n.scratch.Bytes()[i*simChunk : (i+1)*simChunk]
	if !clean(b) {
		n.w.fail("%s: chunk %d was written after its operation ended, at byte %d", n.name, i, mem.Poisoned(b))
	}
	return i, b
}

// inFlight returns how many operations have leases on r.
func inFlight(r *Region) int { return int(r.lease.word.Load() & leaseCountMask) }

func (n *simNode) putChunk(i int) {
	mem.Poison(n.scratch.Bytes()[i*simChunk : (i+1)*simChunk])
	n.chunks = append(n.chunks, i)
}

// fill() returns n bytes that are derived from seed. The bytes are valid until the next call.
func (w *simWorld) fill(n int, seed uint64) []byte {
	if cap(w.space) < n {
		w.space = make([]byte, 2*n)
	}
	b := w.space[:n]
	fillFrom(b, seed)
	return b
}
