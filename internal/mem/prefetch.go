package mem

// Prefetch makes the pages of n bytes at addr resident, so that the next access finds them there;
// with write, also writable without a fault. It is a hint: it ignores a range outside the arena,
// and pages that the system does not bring in. It blocks for the pages, those of a file for the
// disk. Any goroutine may call it; the caller holds a pin.
func (a *Arena) Prefetch(addr uint64, n int, write bool) {
	if n <= 0 || a.size.Load() == 0 {
		return
	}
	if off, ok := a.offset(addr, uint64(n)); ok {
		osPrefetch(a.base, off, uintptr(n), write)
	}
}
