package mem

import (
	"errors"
	"fmt"
	"sync"
)

// adopting makes the two steps of AdoptFor one within the process. A provider pins the smallest arena
// that holds the range, and the newest of several equal ones. The mutex ensures that this is the arena
// that was adopted for the registration. Otherwise the registration could pin the arena of another
// one, which then could not be dropped.
var adopting sync.Mutex

// AdoptFor has register register b with a device, and makes b known to the device for that, in one
// step. It returns what the caller unmaps when the registration has ended: an adopted arena, or nil
// if b is in an arena of [Map] or [MapFile]. That arena is not adopted again, so that the device pins
// it and it cannot be unmapped under the registration. AdoptFor may be called from any goroutine. Calls
// for memory that the program mapped wait for each other, with the device. The caller keeps owning b.
//
// Errors: those of [Adopt]; [ErrPartlyOwned]; that of register, which then has registered nothing.
func AdoptFor(b []byte, register func(addr, n uint64) error) (*Arena, error) {
	addr, n := AddrOf(b), uint64(len(b))
	if a := owned(addr, addr+n); a != nil {
		if _, in := a.Slice(addr, len(b)); !in {
			return nil, fmt.Errorf("%w: %d bytes at %#x", ErrPartlyOwned, n, addr)
		}
		return nil, register(addr, n)
	}
	adopting.Lock()
	defer adopting.Unlock()
	a, err := Adopt(b)
	if err != nil {
		return nil, err
	}
	if err := register(addr, n); err != nil {
		return nil, errors.Join(err, a.Unmap())
	}
	return a, nil
}

// OwnedIn reports whether a byte of b, which is not empty, is in an arena of [Map] or [MapFile].
func OwnedIn(b []byte) bool { return owned(AddrOf(b), AddrOf(b)+uint64(len(b))) != nil }

// owned returns an arena of Map or MapFile that has a byte of [addr, end), or nil.
func owned(addr, end uint64) *Arena {
	if addr >= end {
		return nil
	}
	t := table()
	// Only arenas that begin below end can have one.
	for c := chunksTo(t, end-1) - 1; c >= 0 && t[c].reach > addr; c-- {
		es := t[c].entries
		for i := entriesTo(es, end-1) - 1; i >= 0 && es[i].reach > addr; i-- {
			if es[i].end > addr && es[i].arena.owned {
				return es[i].arena
			}
		}
	}
	return nil
}
