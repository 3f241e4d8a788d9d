package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
)

// simLocal is the local memory of one operation: pieces of pool buffers or of
// scratch.
type simLocal struct {
	e      *simEnd
	slices []Slice
	views  [][]byte
	bufs   []Buffer
	chunks []int
}

// local takes n bytes in the given number of pieces. kept asks for memory whose
// views stay readable until free.
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
				e.w.fail("slice of scratch: %v", err)
			}
			l.chunks, l.slices, l.views = append(l.chunks, i), append(l.slices, s), append(l.views, b[:size])
			continue
		}
		buf, err := e.n.rt.Alloc(size)
		if err != nil {
			e.w.fail("buffer of %d bytes: %v", size, err)
		}
		l.bufs, l.slices, l.views = append(l.bufs, buf), append(l.slices, buf.Slice()), append(l.views, buf.Bytes())
	}
	return l
}

// put spreads b over the pieces.
func (l *simLocal) put(b []byte) *simLocal {
	for _, v := range l.views {
		b = b[copy(v, b):]
	}
	return l
}

// same compares the pieces with b.
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

// dropBuffers gives the buffers back while the device may still have them: they
// go home when it has not.
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

// free gives everything back, after the operation.
func (l *simLocal) free() {
	l.dropBuffers()
	for _, i := range l.chunks {
		l.e.n.putChunk(i)
	}
	l.chunks = nil
}

// chunk takes a free chunk of scratch; nothing may have been written to it.
func (n *simNode) chunk() (int, []byte) {
	i := n.chunks[len(n.chunks)-1]
	n.chunks = n.chunks[:len(n.chunks)-1]
	b := n.scratch.Bytes()[i*simChunk : (i+1)*simChunk]
	if !clean(b) {
		n.w.fail("%s: chunk %d was written after its operation ended, at byte %d", n.name, i, mem.Poisoned(b))
	}
	return i, b
}

// inFlight is how many operations have r.
func inFlight(r *Region) int { return int(r.lease.word.Load() & leaseCountMask) }

func (n *simNode) putChunk(i int) {
	mem.Poison(n.scratch.Bytes()[i*simChunk : (i+1)*simChunk])
	n.chunks = append(n.chunks, i)
}

// fill is n bytes that follow from seed; they are good until the next call.
func (w *simWorld) fill(n int, seed uint64) []byte {
	if cap(w.space) < n {
		w.space = make([]byte, 2*n)
	}
	b := w.space[:n]
	fillFrom(b, seed)
	return b
}
