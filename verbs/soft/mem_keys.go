package soft

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A key is an index and a tag of 8 bits. No two objects have the same index. The user chooses the
// tag of a window at each binding; that of a region never changes.
const keyTagBits = 8

// keyIndex returns the upper part of a key.
func keyIndex(key uint32) uint32 { return key >> keyTagBits }

// keyTable finds regions and windows by key; another one finds queue pairs by number. Indexes are 24
// random bits, so that a peer cannot guess one from another. Being random they are their own hash, and a lookup nearly always takes
// one probe. The table belongs to the holder of the port's token.
type keyTable struct {
	slots []keySlot // power of two, at most half full
	n     int
}

// keySlot holds a region or a window under its key, or a queue pair (qp_numbers.go). Empty, it has key 0, which no
// object has.
type keySlot struct {
	key uint32
	mr  *memoryRegion
	mw  *memoryWindow
	qp  *queuePair
}

func (s *keySlot) empty() bool { return s.key == 0 }

// keyTableMin is the first size of a key table.
const keyTableMin = 64

// find returns the slot of an index, nil when there is none.
func (t *keyTable) find(index uint32) *keySlot {
	if len(t.slots) == 0 {
		return nil
	}
	mask := uint32(len(t.slots) - 1)
	for i := index & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.empty() {
			return nil
		}
		if keyIndex(s.key) == index {
			return s
		}
	}
}

// each calls fn with the guard of every region and window.
func (t *keyTable) each(fn func(*guard)) {
	for _, s := range t.slots {
		switch {
		case s.mr != nil:
			fn(&s.mr.guard)
		case s.mw != nil:
			fn(s.mw.guard)
		}
	}
}

// get returns the region with this key, nil when there is none.
func (t *keyTable) get(key uint32) *memoryRegion {
	if s := t.find(keyIndex(key)); s != nil && s.key == key {
		return s.mr
	}
	return nil
}

// region is get with a fast path for a key in its first place.
func (t *keyTable) region(key uint32) *memoryRegion {
	if n := uint32(len(t.slots)); n > 0 {
		if s := &t.slots[keyIndex(key)&(n-1)]; s.key == key {
			return s.mr
		}
	}
	return t.get(key)
}

// put adds an object under a key whose index is not in use.
func (t *keyTable) put(s keySlot) {
	if 2*(t.n+1) > len(t.slots) {
		old := t.slots
		t.slots = make([]keySlot, max(keyTableMin, 2*len(old)))
		for _, s := range old {
			if !s.empty() {
				t.place(s)
			}
		}
	}
	t.place(s)
	t.n++
}

func (t *keyTable) place(s keySlot) {
	mask := uint32(len(t.slots) - 1)
	i := keyIndex(s.key) & mask
	for !t.slots[i].empty() {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// remove removes an index. It reinserts the rest of its probe run, so that no tombstone is
// needed.
func (t *keyTable) remove(index uint32) {
	if t.find(index) == nil {
		return
	}
	mask := uint32(len(t.slots) - 1)
	i := index & mask
	for keyIndex(t.slots[i].key) != index {
		i = (i + 1) & mask
	}
	t.slots[i] = keySlot{}
	t.n--
	for i = (i + 1) & mask; !t.slots[i].empty(); i = (i + 1) & mask {
		s := t.slots[i]
		t.slots[i] = keySlot{}
		t.place(s)
	}
}

// fresh draws a key whose index is not in use. It never returns index 0: many programs take key 0
// for none.
func (t *keyTable) fresh(random io.Reader) (uint32, error) {
	var b [4]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("soft: no randomness for a memory key: %w", err)
		}
		if k := binary.BigEndian.Uint32(b[:]); keyIndex(k) != 0 && t.find(keyIndex(k)) == nil {
			return k, nil
		}
	}
}
