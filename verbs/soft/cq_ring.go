package soft

import (
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// cqe is one completion in the ring, and the work queue position that polling it frees.
type cqe struct {
	wc  verbs.WC
	wq  *workQueue
	pos uint64
}

// cqRing is the ring between the engine, which produces, and the poller. Resizing links a second
// ring behind the first: the engine continues in the new one, and the poller drains the old one
// before it follows. Its memory grows with use: each part is made when its first entry is used first.
type cqRing struct {
	// parts hold the entries, cqPart each. The engine makes a part before it publishes, by tail, an entry
	// in it. The poller reads only entries below tail.
	parts [][]cqe
	mask  uint64
	size  uint64
	_     [cacheLine]byte

	// tail is the end of the pollable completions. The engine writes it at the end of Progress,
	// which publishes the completions below; the poller reads it.
	tail atomic.Uint64
	fill uint64 // the engine's own end, ahead of tail during Progress
	seen uint64 // the engine's copy of head
	// prior is the previous ring until all of it has been polled: its completions count against
	// the capacity. Engine only.
	prior *cqRing
	_     [cacheLine]byte

	// head is the next completion to poll. The poller writes it once per poll, which publishes
	// that the entries below are free; the engine reads it.
	head atomic.Uint64
	// next is the ring that follows. Resize writes it once under the port's token, after the last
	// tail of this ring; the poller reads it.
	next atomic.Pointer[cqRing]
	_    [cacheLine]byte
}

func newCQRing(size int) *cqRing {
	places := uint64(1) << bits.Len64(uint64(size)-1)
	return &cqRing{parts: make([][]cqe, (places+cqPart-1)>>cqPartBits), mask: places - 1, size: uint64(size)}
}

// cqPart is the number of entries of a part: 20 KiB.
const (
	cqPartBits = 8
	cqPart     = 1 << cqPartBits
)

// at returns the entry at pos, whose part must exist.
func (r *cqRing) at(pos uint64) *cqe {
	pos &= r.mask
	return &r.parts[pos>>cqPartBits][pos%cqPart]
}

// place returns the next free entry, nil when the ring is full. Engine only.
func (r *cqRing) place() *cqe {
	if r.fill-r.seen == r.size || r.prior != nil {
		r.seen = r.head.Load()
		if r.queued() >= r.size {
			return nil
		}
	}
	if p := &r.parts[(r.fill&r.mask)>>cqPartBits]; *p == nil {
		*p = make([]cqe, min(r.mask+1, cqPart))
	}
	e := r.at(r.fill)
	r.fill++
	return e
}

// queued returns the number of unpolled completions, here and in the previous rings, as the
// engine sees it.
func (r *cqRing) queued() uint64 {
	n := r.fill - r.head.Load()
	if r.prior == nil {
		return n
	}
	before := r.prior.queued()
	if before == 0 {
		r.prior = nil
	}
	return n + before
}

// poll moves up to len(wc) completions out and frees the positions of their work requests, with
// one store for each run of the same queue. Poller only.
func (r *cqRing) poll(wc []verbs.WC) (n int) {
	h, t := r.head.Load(), r.tail.Load()
	if h == t {
		return 0
	}
	var wq *workQueue // the queue whose positions below pos are to be freed
	var pos uint64
	var last *workQueue
	skip := false
	for ; h != t && n < len(wc); h++ {
		e := r.at(h)
		if e.wq != last {
			last = e.wq
			if wq != nil {
				wq.freed.Store(pos)
				wq = nil
			}
			skip = last.dead.Load()
		}
		e.wq = nil // the ring must not keep a queue alive that is closed later
		if skip {
			continue
		}
		wc[n] = e.wc
		n++
		if last.slots != nil {
			last.slots.give(uint32(e.pos))
			continue
		}
		wq, pos = last, e.pos+1
	}
	if wq != nil {
		wq.freed.Store(pos)
	}
	r.head.Store(h)
	return n
}

// abandon returns the slots of shared receive queues whose completions will not be polled because
// the queue is closed.
func (r *cqRing) abandon() {
	for h := r.head.Load(); h != r.fill; h++ {
		e := r.at(h)
		if e.wq.slots != nil {
			e.wq.slots.give(uint32(e.pos))
		}
		e.wq = nil
	}
	r.head.Store(r.fill)
}
