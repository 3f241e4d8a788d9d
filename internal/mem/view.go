package mem

import "unsafe"

// offset checks that [addr, addr+n) lies in the arena and returns the offset of addr. It computes
// with differences only, so nothing overflows whatever addr and n are.
func (a *Arena) offset(addr, n uint64) (uintptr, bool) {
	off := addr - a.addr // wraps to a huge value if addr is below the base
	size := a.size.Load()
	if off > size || n > size-off {
		return 0, false
	}
	return uintptr(off), true
}

// Slice returns the range of n bytes at addr, with its capacity cut to n, or false if the range
// is not wholly inside. n may be 0, also at the very end. It does not block or allocate. The
// slice is valid until Unmap.
func (a *Arena) Slice(addr uint64, n int) ([]byte, bool) {
	if n < 0 {
		return nil, false
	}
	off, ok := a.offset(addr, uint64(n))
	if !ok || a.size.Load() == 0 {
		return nil, false
	}
	if n == 0 {
		off = 0 // a pointer one past the end may belong to another object
	}
	return unsafe.Slice((*byte)(unsafe.Add(a.base, off)), n), true
}

// Word returns the 8-byte word at addr, for atomics, or false if addr is not aligned to 8 or the
// word is not wholly inside. It does not block or allocate.
func (a *Arena) Word(addr uint64) (*uint64, bool) {
	off, ok := a.offset(addr, 8)
	if !ok || addr&7 != 0 {
		return nil, false
	}
	return (*uint64)(unsafe.Add(a.base, off)), true
}

// At returns the T at addr, or false if addr is not aligned for T or the T is not wholly inside.
// T must hold no Go pointers, which the garbage collector would not see off-heap: race builds
// check it at each call and panic, and other builds leave it to [PointerFree]. It does not block
// or allocate.
func At[T any](a *Arena, addr uint64) (*T, bool) {
	checkPlain[T]()
	var t T
	off, ok := a.offset(addr, uint64(unsafe.Sizeof(t)))
	if !ok || addr&(uint64(unsafe.Alignof(t))-1) != 0 {
		return nil, false
	}
	return (*T)(unsafe.Add(a.base, off)), true
}

// Array returns the n consecutive Ts at addr, with the capacity cut to n, or false if addr is not
// aligned for T or the range is not wholly inside. n may be 0. The condition of [At] on T
// applies. It does not block or allocate.
func Array[T any](a *Arena, addr uint64, n int) ([]T, bool) {
	checkPlain[T]()
	var t T
	size := uint64(unsafe.Sizeof(t))
	total := a.size.Load()
	if n < 0 || total == 0 || (size != 0 && uint64(n) > total/size) {
		return nil, false
	}
	off, ok := a.offset(addr, uint64(n)*size)
	if !ok || addr&(uint64(unsafe.Alignof(t))-1) != 0 {
		return nil, false
	}
	if uint64(n)*size == 0 {
		off = 0
	}
	return unsafe.Slice((*T)(unsafe.Add(a.base, off)), n), true
}
