package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// What needs no memory of its own: atomics, whole words, and FLUSH.

// word plans one operation on a word: what makes it of the word and what is there, and
// next says what becomes of that.
func (e *simEnd) word(kind opKind, what func(Remote, uint64) (Op, func() (Future, error)), next func(uint64) uint64) *simPlan {
	a := e.to
	i := e.w.r.IntN(simWords)
	remote, ok := a.remote(wordsAt+i*8, 8)
	if !ok {
		return nil
	}
	word := &a.words[i]
	found := word.states[len(word.states)-1]
	p := e.planned(kind)
	p.what, p.call = what(remote, found)
	word.states = append(word.states, next(found))
	p.undo = func() { word.states = word.states[:len(word.states)-1] }
	p.ok = func(r Result) error {
		word.states = word.states[1:]
		if kind != opAtomicWrite && r.Value != found {
			return fmt.Errorf("found %d, want %d", r.Value, found)
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

// atomicWrite stores a whole word.
func (e *simEnd) atomicWrite() *simPlan {
	w := e.w
	value := w.r.Uint64()
	return e.word(opAtomicWrite, func(m Remote, _ uint64) (Op, func() (Future, error)) {
		return AtomicWriteOp(m, value), func() (Future, error) { return e.c.Start(w.ended, new(AtomicWriteOp(m, value))) }
	}, func(uint64) uint64 { return value })
}

// addShared adds 1 to a word that all connections add to: no two of those that
// succeed find the same value.
func (e *simEnd) addShared() *simPlan {
	w, peer := e.w, e.to.n
	if !e.to.alive() {
		return nil
	}
	i := w.r.IntN(simShared)
	s := peer.shared[i]
	remote, err := peer.target.Remote(i*8, 8)
	if err != nil {
		w.fail("describing a counter of %s: %v", peer.name, err)
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
			return fmt.Errorf("found %d, which another addition found too, or which is more than the %d tried", r.Value, s.tried)
		}
		s.seen[r.Value] = true
		return nil
	}
	return p
}

// flush makes a slot visible: when it has succeeded, what was written before is
// there.
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
