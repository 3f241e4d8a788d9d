package runtime

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/verbena-rdma/verbena/internal/mem"
)

// simArea is what one end of a pair may write, read and add to at the other's
// node, and what it should hold.
type simArea struct {
	n      *simNode
	at     int // offset in the target region
	used   bool
	shadow []byte // what the slots hold when all that was accepted has succeeded
	slots  [simSlots]simSlot
	words  [simWords]simWord
}

// simSlot is the state of a slot.
type simSlot struct {
	pending int  // writes under way
	readers int  // reads under way
	torn    bool // a write failed: nobody knows what is there
	// cutBy is the split write that was cut short there, 0: none. What was
	// posted of it is done with when a later operation has succeeded.
	cutBy uint64
}

// simWord is an 8-byte word under atomics. states is what it was after the last
// operation known to have succeeded, and after each one accepted since: it must
// be one of these.
type simWord struct{ states []uint64 }

func (n *simNode) word(at int) uint64 {
	return binary.NativeEndian.Uint64(n.target.Bytes()[at:])
}

func slotAt(i int) int { return simGap + i*(simSlotSize+simGap) }

const wordsAt = simSlots*(simSlotSize+simGap) + simGap

func (a *simArea) bytes() []byte { return a.n.target.Bytes()[a.at : a.at+simAreaSize] }

// alive tells whether the area's memory is still there: its node may have been
// restarted.
func (a *simArea) alive() bool {
	return a.n.rt != nil && slices.Contains(a.n.areas, a)
}

func (a *simArea) take() {
	if !clean(a.bytes()) {
		a.n.w.fail("%s: an area was written after its connection ended, at byte %d", a.n.name, mem.Poisoned(a.bytes()))
	}
	*a = simArea{n: a.n, at: a.at, used: true, shadow: a.shadow}
	// Not poison: that would be the mark of memory read after its lease.
	for i := range a.slots {
		slot := a.bytes()[slotAt(i) : slotAt(i)+simSlotSize]
		fillFrom(slot, uint64(i))
		copy(a.shadow[slotAt(i):], slot)
	}
	clear(a.bytes()[wordsAt : wordsAt+simWords*8])
	for i := range a.words {
		a.words[i].states = []uint64{0}
	}
}

// area takes an area for a pair.
func (n *simNode) area() *simArea {
	for _, a := range n.areas {
		if !a.used {
			a.take()
			return a
		}
	}
	return nil
}

// checkSlot compares a slot with the model. It may be called when no write is
// under way.
func (a *simArea) checkSlot(i int, when string) {
	at := slotAt(i)
	got, want := a.bytes()[at:at+simSlotSize], a.shadow[at:at+simSlotSize]
	if bytes.Equal(got, want) {
		return
	}
	for k := range got {
		if got[k] != want[k] {
			a.n.w.fail("%s: slot %d of the area at %d, %s: byte %d is 0x%02x, want 0x%02x", a.n.name, i, a.at, when, k, got[k], want[k])
		}
	}
}

// settleSlot is called when a write to a slot has completed.
func (a *simArea) settleSlot(i int) {
	s := &a.slots[i]
	if s.pending--; s.pending > 0 || !a.alive() {
		return
	}
	if !s.torn {
		a.checkSlot(i, "after a successful WRITE")
	}
}

// resync takes what a slot holds as known, when nothing is under way any more.
func (a *simArea) resync(i int) {
	if s := &a.slots[i]; s.pending == 0 && a.alive() {
		s.torn, s.cutBy = false, 0
		at := slotAt(i)
		copy(a.shadow[at:at+simSlotSize], a.bytes()[at:])
	}
}

// poisonRun is longer than what chance writes.
var poisonRun = bytes.Repeat([]byte{mem.PoisonByte}, 12)

// retire looks at everything once more, when both ends are gone, and poisons it.
func (a *simArea) retire() {
	if !a.alive() {
		return
	}
	b := a.bytes()
	for i := range a.slots {
		if !a.slots[i].torn {
			a.checkSlot(i, "when both ends were gone")
		} else if k := bytes.Index(b[slotAt(i):slotAt(i)+simSlotSize], poisonRun); k >= 0 {
			a.n.w.fail("%s: slot %d of the area at %d holds poison at byte %d: a buffer was read after its lease ended", a.n.name, i, a.at, k)
		}
		if gap := b[slotAt(i)-simGap : slotAt(i)]; !clean(gap) {
			a.n.w.fail("%s: the gap before slot %d of the area at %d was written", a.n.name, i, a.at)
		}
	}
	if !clean(b[wordsAt-simGap:wordsAt]) || !clean(b[wordsAt+simWords*8:]) {
		a.n.w.fail("%s: the gaps around the words of the area at %d were written", a.n.name, a.at)
	}
	for i := range a.words {
		v := a.n.word(a.at + wordsAt + i*8)
		if !slices.Contains(a.words[i].states, v) {
			a.n.w.fail("%s: word %d of the area at %d is %d, want one of %v", a.n.name, i, a.at, v, a.words[i].states)
		}
	}
	mem.Poison(b)
	a.used = false
}
