package mem

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mem/writeback"
)

// Options select the kind of mapping that [Map] makes. The zero value is a plain mapping.
type Options struct {
	// Huge asks for huge pages: reserved ones where the system has enough of
	// them, transparent ones otherwise. The size is rounded up to a whole huge
	// page either way. Default: false.
	Huge bool
	// Node is the number of the preferred NUMA node plus one. The default, 0,
	// leaves placement to the thread that first touches a page. The preference
	// is not a hard binding, because a node that has run out of reserved huge
	// pages would then kill the process with SIGBUS at first touch.
	Node int
	// Populate makes all pages present before Map returns. Default: false.
	Populate bool
}

// unmap is osUnmap. Tests replace it.
var unmap = osUnmap

// closedPins is the value of Arena.pins once the arena is unmapped.
const closedPins = math.MinInt64

// Arena is one range of off-heap memory.
//
// The word pins holds its state:
//
//	            Pin / Unpin
//	            +-------+
//	            v       |
//	Map ----> live(0) -----> live(n>0)     Unmap: ErrPinned
//	MapFile     |
//	Adopt       |
//	            | Unmap (CAS 0 -> closed: one caller wins)
//	            v
//	          closed                       Pin: ErrUnmapped; Unmap: nil
//	            | the system refuses
//	            v
//	          live(0)
//
// All methods may be called from any goroutine and none blocks, except that Unmap enters the
// kernel and takes the registry's lock, and Sync and Prefetch may wait for the disk. None allocates, except
// Unmap. No view may be used after Unmap (see the package comment).
type Arena struct {
	base    unsafe.Pointer // immutable
	addr    uint64         // base as a number; immutable
	total   int            // bytes at base; immutable
	owned   bool           // made by Map or MapFile, so Unmap returns it to the system; immutable
	kind    Kind           // what it maps; immutable
	huge    bool           // mapped with reserved huge pages; immutable
	bound   bool           // the NUMA preference was accepted; immutable
	parts   []part         // of an adopted arena, what Check knows; nil where the system does not say. Immutable
	created string         // the file that MapFile has created for it, "" otherwise; immutable
	file    *os.File       // the mapped file if an access may wait for a disk; nil otherwise. Immutable; Unmap closes it
	disk    uint64         // the number of its file system; immutable
	// instruction is what Sync uses; None for volatile memory, and where Sync uses msync. Immutable.
	instruction writeback.Instruction

	// size is total while the arena is live and 0 afterwards. Written by Map or Adopt before the
	// arena is published, and by Unmap; read by all views. It makes late look-ups fail, but does
	// not protect existing views: pins do that.
	size atomic.Uint64
	// pins counts registrations, or is closedPins. Written by Pin, Unpin and Unmap. Unmap's
	// change from 0 publishes that no further pin is possible; its change back, that the arena is
	// registered again.
	pins atomic.Int64
}

// Map makes an anonymous, private, zeroed mapping of at least size bytes, rounded up to whole
// pages, and registers it for [Find]. It enters the kernel and, with Populate, touches all pages.
// The caller owns the arena until it calls [Arena.Unmap]; the garbage collector never unmaps it.
//
// Errors: [ErrSize], [ErrNode], or the system's. A kernel that does not permit placement at all
// (a container's filter) is no error: see [Arena.Bound].
//
// Implements: mmap(2), mbind(2), madvise(2); VirtualAlloc on Windows.
func Map(size int, o Options) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	if o.Node < 0 {
		return nil, fmt.Errorf("%w: node %d", ErrNode, o.Node-1)
	}
	m, err := osMap(size, o)
	if err != nil {
		return nil, err
	}
	a := &Arena{base: m.base, addr: uint64(uintptr(m.base)), total: m.size, owned: true, huge: m.huge, bound: m.bound}
	a.size.Store(uint64(m.size))
	register(a)
	return a, nil
}

// mapping is the result of the system-specific part of Map.
type mapping struct {
	base        unsafe.Pointer
	size        int
	created     string
	file        *os.File
	disk        uint64
	huge, bound bool
	kind        Kind
	instruction writeback.Instruction
}

// roundUp rounds size up to a multiple of unit, a power of two.
func roundUp(size, unit int) (int, error) {
	if size > math.MaxInt-(unit-1) {
		return 0, fmt.Errorf("%w: %d bytes do not fit whole pages of %d", ErrSize, size, unit)
	}
	return (size + unit - 1) &^ (unit - 1), nil
}

// Adopt registers memory that the caller mapped itself, so that it can be found and viewed like a
// mapped arena. The caller keeps owning b and must keep it mapped until it has called
// [Arena.Unmap], which only unregisters it. Adopted arenas may overlap each other and mapped
// ones.
//
// Errors: [ErrSize] for an empty slice; [ErrGoHeap] for memory of the Go runtime; [ErrNotMapped]
// if a part of b is not mapped or not readable. On Linux the check reads /proc/self/maps: it refuses mappings
// that the runtime named as its own, the contiguous run of mappings around the runtime's heap,
// and the running program's own segments. Elsewhere it is best effort: it refuses the address
// range in which the Go heap of a 64-bit program grows.
func Adopt(b []byte) (*Arena, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: adopting an empty slice", ErrSize)
	}
	base := unsafe.Pointer(unsafe.SliceData(b))
	addr := uint64(uintptr(base))
	parts, err := checkForeign(addr, uint64(len(b)))
	if err != nil {
		return nil, err
	}
	a := &Arena{base: base, addr: addr, total: len(b), parts: parts}
	a.size.Store(uint64(len(b)))
	register(a)
	return a, nil
}

// Addr returns the address of the first byte. It stays the same after Unmap.
func (a *Arena) Addr() uint64 { return a.addr }

// Len returns the number of bytes: whole pages for Map, the slice's length for Adopt, 0 after
// Unmap.
func (a *Arena) Len() int { return int(a.size.Load()) }

// Bytes returns the whole arena as one slice, nil after Unmap. It is valid until Unmap.
func (a *Arena) Bytes() []byte {
	n := a.size.Load()
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(a.base), int(n))
}

// Huge reports whether the arena uses reserved huge pages. Transparent ones come and go and are
// not reported.
func (a *Arena) Huge() bool { return a.huge }

// Owned reports whether the arena was made by [Map] or [MapFile], and not adopted.
func (a *Arena) Owned() bool { return a.owned }

// Bound reports whether the system accepted the NUMA preference of [Options.Node].
func (a *Arena) Bound() bool { return a.bound }

// Pin keeps the arena mapped until a matching [Arena.Unpin]. A registration
// holds one pin. It fails with [ErrUnmapped] once the arena is unmapped.
func (a *Arena) Pin() error {
	for {
		n := a.pins.Load()
		if n == closedPins {
			return fmt.Errorf("%w: %#x", ErrUnmapped, a.addr)
		}
		if a.pins.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Unpin removes one pin. It panics if there is none: the caller's count is wrong, and continuing
// could unmap memory while a device uses it.
func (a *Arena) Unpin() {
	for {
		n := a.pins.Load()
		if n <= 0 {
			panic(fmt.Sprintf("mem: unpin of arena %#x without a pin", a.addr))
		}
		if a.pins.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// Pins returns the number of pins held now, 0 after Unmap.
func (a *Arena) Pins() int { return int(max(a.pins.Load(), 0)) }

// Unmap ends the arena: it unmaps a mapping made by Map or MapFile, and only unregisters an
// adopted range. It is idempotent. While pins are held it fails with [ErrPinned] and changes
// nothing. If the system refuses (at its limit of mappings, vm.max_map_count, it cannot cut one in two),
// the arena lives on, and Unmap can be called again. No view of the arena may be in use.
//
// Implements: munmap(2); VirtualFree on Windows.
func (a *Arena) Unmap() error {
	if !a.pins.CompareAndSwap(0, closedPins) {
		// Read after the failed swap: pins may have been removed in between, and then the error
		// was correct at the moment of the swap.
		if n := a.pins.Load(); n != closedPins {
			return fmt.Errorf("%w: %#x has %d pins", ErrPinned, a.addr, n)
		}
		return nil
	}
	// Only the winner of the swap gets here. First Find no longer finds the arena, then look-ups
	// through a kept *Arena fail, then the memory is unmapped.
	unregister(a)
	a.size.Store(0)
	if !a.owned {
		return nil
	}
	if err := unmap(a.base, a.total); err != nil {
		a.size.Store(uint64(a.total))
		register(a)
		a.pins.Store(0) // last: from here on another Unmap may begin
		return fmt.Errorf("mem: unmap of %d bytes at %#x: %w", a.total, a.addr, err)
	}
	if a.file != nil {
		_ = a.file.Close() // nothing was written by it
	}
	return nil
}
