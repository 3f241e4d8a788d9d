package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Populate has no effect here: committed pages are backed by the page file from
// the start.
func osMap(size int, _ Options) (mapping, error) {
	n, err := roundUp(size, os.Getpagesize())
	if err != nil {
		return mapping{}, err
	}
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return mapping{}, fmt.Errorf("mem: map of %d bytes: %w", n, err)
	}
	// The system returns the address as a number. It is outside the Go heap, so reading the
	// variable as a pointer is sound.
	return mapping{base: *(*unsafe.Pointer)(unsafe.Pointer(&addr)), size: n}, nil
}

func osUnmap(base unsafe.Pointer, _ int) error {
	return windows.VirtualFree(uintptr(base), 0, windows.MEM_RELEASE) // size must be 0 to release
}
