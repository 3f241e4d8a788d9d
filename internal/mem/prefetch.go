package mem

import "sync/atomic"

// Prefetch makes the pages of n bytes at addr resident, so that the next access finds them there;
// with write, also writable without a fault. It is a hint: it ignores a range outside the arena,
// and pages that the system does not bring in. It blocks for the pages, those of a file for the
// disk. Any goroutine may call it; the caller holds a pin. No byte changes.
//
// To make a page of a file writable, the system notes the time in the file's inode, which may wait for the file
// system's journal, or for the end of a freeze. Meanwhile MADV_POPULATE_WRITE keeps the process's list of mappings
// locked (Linux 6.18), and each mmap of the process waits, too. So Prefetch first sets the file's time, which waits for
// the same and holds no lock of the process. It sets the time of the last access, too.
func (a *Arena) Prefetch(addr uint64, n int, write bool) {
	if n <= 0 || a.size.Load() == 0 {
		return
	}
	off, ok := a.offset(addr, uint64(n))
	if !ok {
		return
	}
	if write {
		if a.file != nil {
			osTouch(a.file)
		}
		populating.Add(1)
		defer populating.Add(-1)
	}
	osPrefetch(a.base, off, uintptr(n), write)
}

// populating counts the calls of Prefetch that make pages writable, and may keep the list of mappings locked. Any goroutine
// writes and reads it; it publishes nothing.
var populating atomic.Int32

// Resident reports whether the pages of n bytes at addr are in memory, so that a read does not wait for a disk. The
// system may drop a page of a file at any time when it lacks memory. It returns false where the system does not say, and
// while pages are made writable (Prefetch), because the system's answer might wait for that. It enters the kernel for
// about 1 us, and does not block. Any goroutine may call it; the caller holds a pin.
func (a *Arena) Resident(addr uint64, n int) bool {
	off, ok := a.offset(addr, uint64(max(n, 0)))
	return ok && n > 0 && a.size.Load() != 0 && populating.Load() == 0 && osResident(a.base, off, uintptr(n))
}
