package runtime

import "github.com/verbena-rdma/verbena/verbs"

// atomicWrite stores a whole word.
func (e *simEnd) atomicWrite() {
	a := e.to
	i := e.w.r.IntN(simWords)
	remote, ok := a.remote(wordsAt+i*8, 8)
	if !ok {
		return
	}
	word, value := &a.words[i], e.w.r.Uint64()
	f, err := e.c.AtomicWrite(e.w.ended, remote, value)
	if !e.begin(opAtomicWrite, err) {
		return
	}
	word.states = append(word.states, value)
	e.follow(opAtomicWrite, f, func(Result) error { word.states = word.states[1:]; return nil }, noMatter)
}

// flush makes a slot visible: when it has succeeded, what was written before is
// there.
func (e *simEnd) flush() {
	a := e.to
	i := e.w.r.IntN(simSlots)
	remote, ok := a.remote(slotAt(i), simSlotSize)
	if !ok {
		return
	}
	f, err := e.c.Flush(e.w.ended, remote, verbs.FlushGlobal)
	if !e.begin(opFlush, err) {
		return
	}
	e.follow(opFlush, f, func(Result) error {
		if s := &a.slots[i]; s.pending == 0 && !s.torn && a.alive() {
			a.checkSlot(i, "after a FLUSH")
		}
		return nil
	}, noMatter)
}
