package mem

// Prefetch brings the pages of n bytes at addr in, so that whoever touches them
// next finds them there; with write, so that they can be written to without a
// fault too. It is an advice: what lies outside the arena, and what the system
// does not bring in, is passed over. It blocks for the pages, those of a file for
// the disk. Any goroutine may call it; the caller holds a pin.
func (a *Arena) Prefetch(addr uint64, n int, write bool) {
	if n <= 0 || a.size.Load() == 0 {
		return
	}
	if off, ok := a.offset(addr, uint64(n)); ok {
		osPrefetch(a.base, off, uintptr(n), write)
	}
}
