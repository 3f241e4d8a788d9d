package mem

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrNotPersistent means that an arena is not the mapping of a file, so that its bytes cannot be
// made persistent.
var ErrNotPersistent = errors.New("mem: arena is not the mapping of a file")

// FileSupported reports whether [MapFile] works in this build: Linux without the tag "portable".
const FileSupported = fileSupported

// MapFile maps at least size bytes from the start of the file at path, rounded up to whole pages,
// shared and writable, and registers the mapping for [Find]. It creates a missing file, extends a
// shorter one with zeros, and keeps the rest of a longer one. It reserves the space of new bytes
// where the file system can, and the file's size and its name are on disk when MapFile returns,
// so that bytes written later by [Arena.Sync] are found again. It blocks for the disk.
//
// The caller owns the arena as one of [Map]. The file must not be truncated while it is mapped:
// an access to a page after its end kills the process.
//
// Errors: [ErrSize], errors.ErrUnsupported where FileSupported is false, or the system's.
//
// Implements: open(2), fallocate(2), fsync(2), mmap(2) with MAP_SHARED.
func MapFile(path string, size int) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	m, err := osMapFile(path, size)
	if err != nil {
		return nil, err
	}
	a := &Arena{base: m.base, addr: uint64(uintptr(m.base)), total: m.size, owned: true, file: true}
	a.size.Store(uint64(m.size))
	register(a)
	return a, nil
}

// Persistent reports whether the arena is the mapping of a file, so that [Arena.Sync] makes its
// bytes persistent.
func (a *Arena) Persistent() bool { return a.file }

// Sync writes the n bytes at addr, and the rest of their pages, to the file, and returns when the
// file system has them. The file system determines the degree of persistence (on tmpfs the file
// lives in memory, and Sync does nothing). It blocks for the disk. Several calls may run at the
// same time; a caller that is not the owner holds a pin.
//
// Errors: [ErrNotPersistent]; [ErrUnmapped]; [ErrSize] for a range that is not wholly inside; or
// the system's: then it is unknown which bytes reached the disk.
//
// Implements: msync(2) with MS_SYNC.
func (a *Arena) Sync(addr uint64, n int) error {
	if !a.file {
		return fmt.Errorf("%w: %#x", ErrNotPersistent, a.addr)
	}
	if a.size.Load() == 0 {
		return fmt.Errorf("%w: %#x", ErrUnmapped, a.addr)
	}
	off, ok := a.offset(addr, uint64(max(n, 0)))
	if !ok || n < 0 {
		return fmt.Errorf("%w: %d bytes at %#x are not in the arena of %d at %#x", ErrSize, n, addr, a.total, a.addr)
	}
	if n == 0 {
		return nil
	}
	if err := osSync(a.base, off, uintptr(n)); err != nil {
		return fmt.Errorf("mem: sync of %d bytes at %#x: %w", n, addr, err)
	}
	return nil
}

// pageRange returns the whole pages that hold n bytes from off on, n not 0. base is page-aligned,
// as mappings are.
func pageRange(base unsafe.Pointer, off, n, page uintptr) []byte {
	start := off &^ (page - 1)
	end := (off + n + page - 1) &^ (page - 1)
	return unsafe.Slice((*byte)(unsafe.Add(base, start)), end-start)
}
