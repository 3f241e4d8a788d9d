package soft

import (
	"encoding/binary"
	"fmt"
	"io"
)

// keyTable finds regions by key. Keys are 32 random bits, so that a peer
// cannot guess one from another; being random they are their own hash, and a
// lookup is one probe nearly always. It belongs to the holder of the port's
// token.
type keyTable struct {
	slots []keySlot // power of two, at most half full
	n     int
}

type keySlot struct {
	key uint32
	mr  *memoryRegion
}

// keyTableMin is the first size of a key table.
const keyTableMin = 64

// get is the region with this key, nil when there is none.
func (t *keyTable) get(key uint32) *memoryRegion {
	mask := uint32(len(t.slots) - 1)
	if len(t.slots) == 0 {
		return nil
	}
	for i := key & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.mr == nil || s.key == key {
			return s.mr
		}
	}
}

// each calls fn with every region.
func (t *keyTable) each(fn func(*memoryRegion)) {
	for _, s := range t.slots {
		if s.mr != nil {
			fn(s.mr)
		}
	}
}

// put adds a region under a key that is not in use.
func (t *keyTable) put(key uint32, m *memoryRegion) {
	if 2*(t.n+1) > len(t.slots) {
		old := t.slots
		t.slots = make([]keySlot, max(keyTableMin, 2*len(old)))
		for _, s := range old {
			if s.mr != nil {
				t.place(s)
			}
		}
	}
	t.place(keySlot{key, m})
	t.n++
}

func (t *keyTable) place(s keySlot) {
	mask := uint32(len(t.slots) - 1)
	i := s.key & mask
	for t.slots[i].mr != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// remove takes a key out. The rest of its probe run is put again, so that no
// tombstone is needed.
func (t *keyTable) remove(key uint32) {
	if t.get(key) == nil {
		return
	}
	mask := uint32(len(t.slots) - 1)
	i := key & mask
	for t.slots[i].key != key || t.slots[i].mr == nil {
		i = (i + 1) & mask
	}
	t.slots[i] = keySlot{}
	t.n--
	for i = (i + 1) & mask; t.slots[i].mr != nil; i = (i + 1) & mask {
		s := t.slots[i]
		t.slots[i] = keySlot{}
		t.place(s)
	}
}

// fresh draws a key that is not in use. Key 0 is never given: many programs
// take it for none.
func (t *keyTable) fresh(random io.Reader) (uint32, error) {
	var b [4]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("soft: no randomness for a memory key: %w", err)
		}
		if k := binary.BigEndian.Uint32(b[:]); k != 0 && t.get(k) == nil {
			return k, nil
		}
	}
}
