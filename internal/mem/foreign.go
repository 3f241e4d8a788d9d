package mem

import (
	"fmt"
	"unsafe"
)

// probe is a heap object of this package whose address locates the Go heap. It is a package
// variable, so it is never moved to a stack, and large enough not to share a block with others.
var probe = new([256]byte)

func probeAddr() uint64 { return uint64(uintptr(unsafe.Pointer(probe))) }

// hintBits is the distance, as a power of two, between the addresses at which
// the Go runtime tries to begin a heap on 64-bit machines (runtime/malloc.go:
// 1<<40, or 1<<38 where the base is random). A heap smaller than that
// stays within one such window, or two if the base stands near its end.
const hintBits = 38

// inHeapWindow reports whether addr shares the address window of the Go heap. On 32-bit machines,
// where heap and mappings mix, it cannot tell and returns false.
func inHeapWindow(addr uint64) bool {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		return false
	}
	return addr>>hintBits == probeAddr()>>hintBits
}

// checkHint is the check where the system does not list its mappings.
func checkHint(addr, n uint64) error {
	if inHeapWindow(addr) || inHeapWindow(addr+n-1) {
		return fmt.Errorf("%w: %d bytes at %#x are in the range of the Go heap", ErrGoHeap, n, addr)
	}
	return nil
}

// AddrOf returns the address of the first byte of b, which must be memory outside the Go heap: the
// address does not keep b alive. For an empty slice the address may have no meaning.
func AddrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
