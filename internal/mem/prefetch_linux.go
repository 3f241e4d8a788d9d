//go:build linux && !portable

package mem

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// osPrefetch asks for pages. Linux before 5.14 has no MADV_POPULATE_READ and
// _WRITE: there it is told that they will be needed, and need not wait.
func osPrefetch(base unsafe.Pointer, off, n uintptr, write bool) {
	pages := pageRange(base, off, n, uintptr(os.Getpagesize()))
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	if unix.Madvise(pages, advice) == unix.EINVAL {
		_ = unix.Madvise(pages, unix.MADV_WILLNEED) // it is an advice
	}
}
