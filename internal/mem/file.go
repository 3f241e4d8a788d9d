package mem

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mem/writeback"
)

// ErrNotPersistent means that an arena is not the mapping of a file, so that its bytes cannot be
// made persistent.
var ErrNotPersistent = errors.New("mem: arena is not the mapping of a file")

// FileSupported reports whether [MapFile] works in this build: Linux without the tag "portable".
const FileSupported = fileSupported

// Kind is what an arena maps.
type Kind uint8

// The kinds. The zero value is memory that does not outlive the process.
const (
	Volatile Kind = iota
	File          // a file whose pages the system caches
	FSDAX         // a file on persistent memory, mapped without a cache of the system (MAP_SYNC)
	DevDAX        // persistent memory as a character device
)

var kindNames = [...]string{"volatile", "file", "fsdax", "devdax"}

// String returns the kind's name, those of persistent memory as ndctl has them.
func (k Kind) String() string { return kindNames[k] }

// MapFile maps at least size bytes from the start of the file at path, rounded up to whole pages,
// shared and writable, and registers the mapping for [Find]. The file decides what [Arena.Sync] does:
//
//   - A regular file is created if it is missing, and extended with zeros if it is shorter; the rest of
//     a longer one is kept. MapFile reserves the space of new bytes where the file system can, and the
//     file's size and its name are on disk when MapFile returns, so that bytes written later by Sync are
//     found again. If the file is on persistent memory (a file system mounted with dax), and the
//     processor has an instruction for it, Sync writes cache lines back. Otherwise it is msync(2).
//   - A devdax device has its size and alignment, to which the mapping is rounded up. Sync writes cache
//     lines back: msync(2) does nothing there. Without such an instruction the device is refused.
//
// If it fails, it removes a file that it has created; an existing one may have been extended. It blocks
// for the disk. The caller owns the arena as one of [Map].
//
// A file is not trusted. Anything but a regular file and a devdax device is refused, and the size that
// the device reports bounds the mapping. But no process may truncate the file while it is mapped, and
// its device must not fail: an access to a page that is not there any more kills the process (SIGBUS),
// unless it is by Sync or by [Try], as those of the software RNIC are.
// So the folder and the file belong to the user of the process alone; MapFile creates the file with
// that mode.
//
// Errors: [ErrSize], also for more bytes than a device has; errors.ErrUnsupported where FileSupported
// is false, and for a device without a suitable instruction; or the system's.
//
// Implements: open(2), fallocate(2), fsync(2), mmap(2) with MAP_SHARED_VALIDATE and MAP_SYNC or MAP_SHARED.
func MapFile(path string, size int) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	m, err := osMapFile(path, size)
	if err != nil {
		return nil, err
	}
	a := &Arena{base: m.base, addr: uint64(uintptr(m.base)), total: m.size, owned: true, kind: m.kind, instruction: m.instruction, created: m.created, file: m.file, disk: m.disk}
	a.size.Store(uint64(m.size))
	register(a)
	return a, nil
}

// Discard undoes MapFile for a caller that cannot use the arena: it is Unmap, and removes the file if
// MapFile has created it. It enters the kernel.
func (a *Arena) Discard() error {
	err := a.Unmap()
	if err == nil && a.created != "" {
		err = os.Remove(a.created)
	}
	return err
}

// Persistent reports whether the arena is the mapping of a file, so that [Arena.Sync] makes its
// bytes persistent.
func (a *Arena) Persistent() bool { return a.kind != Volatile }

// MayWait reports whether an access may wait for a disk: the arena is a file whose pages the system caches, and not one
// in memory (tmpfs). See [Arena.Prefetch] and [Arena.Resident]. Of an adopted arena it is not known.
func (a *Arena) MayWait() bool { return a.file != nil }

// Disk returns a number of the file system that an access may wait for; 0 if it waits for none.
func (a *Arena) Disk() uint64 { return a.disk }

// Kind returns what the arena maps.
func (a *Arena) Kind() Kind { return a.kind }

// Method returns how [Arena.Sync] makes bytes persistent: "msync", or the name of the processor's
// instruction. It is "none" for volatile memory.
func (a *Arena) Method() string {
	if a.kind != Volatile && a.instruction == writeback.None {
		return "msync"
	}
	return a.instruction.String()
}

// Sync makes the n bytes at addr persistent, with the rest of their cache lines or pages, and returns
// when they are. The method (see [Arena.Method]) tells what that means:
//
//   - msync: the file system has the bytes. It determines the degree of persistence (on tmpfs the file
//     lives in memory, and Sync does nothing). Sync blocks for the disk.
//   - an instruction: the bytes have left the processor's caches, for memory that keeps them when the
//     power fails. Sync waits for the processor only, some 100 ns and 20 ns for each line.
//
// Stores of other goroutines are included if they happened before Sync. Several calls may run at the
// same time; a caller that is not the owner holds a pin.
//
// Errors: [ErrNotPersistent]; [ErrUnmapped]; [ErrSize] for a range that is not wholly inside;
// [ErrNotMapped] if an instruction found a page gone, because the file was truncated; or the system's: then it is unknown which bytes reached the disk.
//
// Implements: msync(2) with MS_SYNC; pmem_persist of libpmem.
func (a *Arena) Sync(addr uint64, n int) error {
	if a.kind == Volatile {
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
	if a.instruction != writeback.None {
		if _, ok := Try(func() { writeback.Persist(a.instruction, uintptr(addr), uintptr(n)) }); !ok {
			return fmt.Errorf("%w: sync of %d bytes at %#x", ErrNotMapped, n, addr)
		}
		return nil
	}
	if err := osSync(a.base, off, uintptr(n)); err != nil {
		return fmt.Errorf("mem: sync of %d bytes at %#x: %w", n, addr, err)
	}
	return nil
}

// quickSync is the most that an instruction writes back within some tens of microseconds.
const quickSync = 64 << 10

// SyncIsQuick reports whether [Arena.Sync] of n bytes neither blocks nor takes long, so that an event
// loop may call it.
func (a *Arena) SyncIsQuick(n int) bool { return a.instruction != writeback.None && n <= quickSync }

// pageRange returns the whole pages that hold n bytes from off on, n not 0. base is page-aligned,
// as mappings are.
func pageRange(base unsafe.Pointer, off, n, page uintptr) []byte {
	start := off &^ (page - 1)
	end := (off + n + page - 1) &^ (page - 1)
	return unsafe.Slice((*byte)(unsafe.Add(base, start)), end-start)
}
