//go:build linux && !portable

package mem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hugePage is the huge page size requested, which amd64 and arm64 with 4 KiB pages have in
	// common. With MAP_HUGE_2MB a kernel without that size refuses.
	hugePage = 2 << 20
	// maxNodes is CONFIG_NODES_SHIFT's largest value in the kernel: 1024 nodes.
	maxNodes = 1024
)

func osMap(size int, o Options) (mapping, error) {
	if o.Node > maxNodes {
		return mapping{}, fmt.Errorf("%w: node %d", ErrNode, o.Node-1)
	}
	m, err := anonymous(size, o.Huge)
	if err != nil {
		return mapping{}, err
	}
	// Placement first: a page that is already present stays where it is.
	if o.Node > 0 {
		if m.bound, err = prefer(m, o.Node-1); err != nil {
			return mapping{}, errors.Join(err, osUnmap(m.base, m.size))
		}
	}
	if o.Populate {
		populate(m)
	}
	return m, nil
}

func anonymous(size int, huge bool) (mapping, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON
	unit := os.Getpagesize()
	if huge {
		unit = max(unit, hugePage)
	}
	n, err := roundUp(size, unit)
	if err != nil {
		return mapping{}, err
	}
	if !huge {
		p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), prot, flags)
		if err != nil {
			return mapping{}, fmt.Errorf("mem: map of %d bytes: %w", n, err)
		}
		return mapping{base: p, size: n}, nil
	}
	if p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), prot, flags|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB); err == nil {
		return mapping{base: p, size: n, huge: true}, nil
	}
	// No reserved huge pages, or not enough: map an aligned range and request transparent ones.
	// The range is mapped too large and trimmed at both ends.
	if n > math.MaxInt-unit {
		return mapping{}, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n+unit), prot, flags)
	if err != nil {
		return mapping{}, fmt.Errorf("mem: map of %d bytes: %w", n, err)
	}
	head := -uintptr(p) & uintptr(unit-1)
	base := unsafe.Add(p, head)
	// Trimming fails only when the process has too many mappings; the rest is then a reservation
	// that is never touched, lost until exit.
	if head > 0 {
		_ = unix.MunmapPtr(p, head)
	}
	if tail := uintptr(unit) - head; tail > 0 {
		_ = unix.MunmapPtr(unsafe.Add(base, n), tail)
	}
	// A kernel without transparent huge pages refuses; small pages serve too.
	_ = unix.Madvise(unsafe.Slice((*byte)(base), n), unix.MADV_HUGEPAGE)
	return mapping{base: base, size: n}, nil
}

// prefer requests pages from one NUMA node. It reports whether the kernel accepted.
func prefer(m mapping, node int) (bool, error) {
	var mask [maxNodes / 64]uint64
	mask[node/64] = 1 << (node % 64) // the kernel reads longs: the same bits, 32-bit big-endian aside
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(m.base), uintptr(m.size), unix.MPOL_PREFERRED,
		uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0) // the kernel uses one bit less than maxnode
	runtime.KeepAlive(&mask)
	switch errno {
	case 0:
		return true, nil
	case unix.ENOSYS, unix.EPERM:
		return false, nil
	case unix.EINVAL:
		return false, fmt.Errorf("%w: node %d", ErrNode, node)
	default:
		return false, fmt.Errorf("mem: placing %d bytes on node %d: %w", m.size, node, errno)
	}
}

// populate makes all pages present. MADV_POPULATE_WRITE exists since Linux 5.14; before that it
// writes to each page.
func populate(m mapping) {
	b := unsafe.Slice((*byte)(m.base), m.size)
	if unix.Madvise(b, unix.MADV_POPULATE_WRITE) == nil {
		return
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 0
	}
}

func osUnmap(base unsafe.Pointer, size int) error {
	return unix.MunmapPtr(base, uintptr(size))
}
