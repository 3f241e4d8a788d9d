package mem

import "fmt"

// Bump allocates pieces of an arena one after another and frees them all at once. Arrays of work
// requests and scatter-gather entries live in one. It does not own the arena. One goroutine at a
// time may use it; it does not block or allocate.
type Bump struct {
	arena *Arena
	from  uint64 // first address of the range
	end   uint64 // first address after the range
	next  uint64 // first free address
}

// NewBump makes an allocator over the whole arena.
func NewBump(a *Arena) *Bump {
	return &Bump{arena: a, from: a.addr, end: a.addr + a.size.Load(), next: a.addr}
}

// Alloc returns the address of size bytes aligned to align, a power of two, or false if the arena
// has no room left. It does not clear the bytes: they are zero only the first time. They are
// valid until Reset or the arena's Unmap. It panics if size is negative or align is no power of
// two.
func (b *Bump) Alloc(size, align int) (addr uint64, ok bool) {
	if size < 0 || align <= 0 || align&(align-1) != 0 {
		panic(fmt.Sprintf("mem: bump allocation of %d bytes aligned to %d", size, align))
	}
	mask := uint64(align) - 1
	at := (b.next + mask) &^ mask
	if at < b.next || at > b.end || uint64(size) > b.end-at {
		return 0, false
	}
	b.next = at + uint64(size)
	return at, true
}

// Reset frees all pieces.
func (b *Bump) Reset() { b.next = b.from }

// Used returns the number of allocated bytes, padding included.
func (b *Bump) Used() int { return int(b.next - b.from) }

// Free returns the number of bytes left, padding of the next piece included.
func (b *Bump) Free() int { return int(b.end - b.next) }

// Arena returns the arena of the addresses.
func (b *Bump) Arena() *Arena { return b.arena }
