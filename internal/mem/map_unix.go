//go:build unix && (!linux || portable)

package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func osMap(size int, o Options) (mapping, error) {
	n, err := roundUp(size, os.Getpagesize())
	if err != nil {
		return mapping{}, err
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return mapping{}, fmt.Errorf("mem: map of %d bytes: %w", n, err)
	}
	if o.Populate {
		b := unsafe.Slice((*byte)(p), n)
		for i := 0; i < n; i += os.Getpagesize() {
			b[i] = 0
		}
	}
	return mapping{base: p, size: n}, nil
}

func osUnmap(base unsafe.Pointer, size int) error {
	return unix.MunmapPtr(base, uintptr(size))
}
