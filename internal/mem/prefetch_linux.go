//go:build linux && !portable

package mem

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// osPrefetch brings pages in. Linux before 5.14 has no MADV_POPULATE_READ and _WRITE: there the
// call is only a hint and need not wait.
func osPrefetch(base unsafe.Pointer, off, n uintptr, write bool) {
	pages := pageRange(base, off, n, uintptr(os.Getpagesize()))
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	if unix.Madvise(pages, advice) == unix.EINVAL {
		_ = unix.Madvise(pages, unix.MADV_WILLNEED) // only a hint
	}
}

// osTouch sets the time of the last change of f to now.
//
// Implements: futimens(3).
func osTouch(f *os.File) {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	_, _, _ = unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0) // only a hint
	runtime.KeepAlive(f)
}

// osResident asks mincore(2). It needs no signal of the scheduler, because mincore does not wait.
func osResident(base unsafe.Pointer, off, n uintptr) bool {
	var present [64]byte // for each page
	page := uintptr(os.Getpagesize())
	for pages := pageRange(base, off, n, page); len(pages) > 0; {
		part := min(uintptr(len(pages)), page*uintptr(len(present)))
		if _, _, e := unix.RawSyscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(pages))), part, uintptr(unsafe.Pointer(&present[0]))); e != 0 {
			return false
		}
		for _, p := range present[:part/page] {
			if p&1 == 0 {
				return false
			}
		}
		pages = pages[part:]
	}
	return true
}
