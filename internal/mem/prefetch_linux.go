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

// osTouch sets the times of f to now. To set one of them alone takes the file's owner.
//
// Implements: futimens(3) without times.
func osTouch(f *os.File) {
	_, _, _ = unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, 0, 0, 0, 0) // only a hint
	runtime.KeepAlive(f)
}

// osResident asks mincore(2), which waits for nothing but the lock of the list of mappings.
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
