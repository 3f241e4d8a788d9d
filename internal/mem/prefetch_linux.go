//go:build linux && !portable

package mem

import (
	"os"
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
