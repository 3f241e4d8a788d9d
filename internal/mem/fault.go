package mem

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// Memory that the program mapped, and the mapping of a file, can stop being there: the program unmaps
// or protects it, a process truncates the file, a disk fails. An access then faults, which ends a Go
// program unless the goroutine asked for a panic (debug.SetPanicOnFault). The functions of this file
// ask for it during one access, and return the fault.

// Fault is the address of an access that failed.
type Fault uint64

// In reports whether the fault is in the pages of b, which is not empty.
func (f Fault) In(b []byte) bool {
	page := uint64(os.Getpagesize())
	return uint64(f) >= AddrOf(b)&^(page-1) && uint64(f) <= (AddrOf(b)+uint64(len(b)-1))|(page-1)
}

// MayFault reports whether the memory can stop being there while the arena lives: that is so of all but
// the anonymous mappings of [Map].
func (a *Arena) MayFault() bool { return !a.owned || a.kind != Volatile }

// catch is deferred by a function that has called debug.SetPanicOnFault(true), with the result of that.
// If the function faulted, catch sets *f, and *ok to false.
func catch(was bool, f *Fault, ok *bool) {
	debug.SetPanicOnFault(was)
	v := recover()
	if v == nil {
		return
	}
	at, fault := v.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !fault {
		panic(v)
	}
	*f, *ok = Fault(at.Addr()), false
}

// Copy copies src to dst, which is at least as long. Either may be memory that faults (see
// [Arena.MayFault]): then ok is false, and some of the bytes may have been copied. It does not
// allocate.
func Copy(dst, src []byte) (f Fault, ok bool) {
	defer catch(debug.SetPanicOnFault(true), &f, &ok)
	// A copy of overlapping memory from its end may set the processor's direction flag (memmove), and a
	// fault would leave it set. So such a copy is made by bytes.
	if d, s := AddrOf(dst), AddrOf(src); d > s && d-s < uint64(len(src)) {
		for i := len(src) - 1; i >= 0; i-- {
			dst[i] = src[i]
		}
		return 0, true
	}
	copy(dst, src)
	return 0, true
}

// Try calls fn, which accesses memory that may fault: then ok is false, and fn has stopped there. It
// does not allocate.
func Try(fn func()) (f Fault, ok bool) {
	defer catch(debug.SetPanicOnFault(true), &f, &ok)
	fn()
	return 0, true
}

// Readable reports whether all pages of b can be read now. It reads one byte of each. It does not
// allocate.
func Readable(b []byte) bool {
	_, ok := Try(func() { peek(b, os.Getpagesize()) })
	return ok
}

// peek reads the first byte of b and the first of each page after that. Its result keeps the compiler
// from omitting the loads.
//
//go:noinline
func peek(b []byte, page int) (x byte) {
	for len(b) > 0 {
		x ^= b[0]
		b = b[min(len(b), page-int(AddrOf(b)&uint64(page-1))):]
	}
	return x
}

// writable reports whether all pages of b can be written now. It writes a word of each without
// changing it, atomically. So a page that was not there, or was shared until its first write, exists
// afterwards.
func writable(b []byte) bool {
	_, ok := Try(func() {
		for page := os.Getpagesize(); len(b) > 0; {
			at := unsafe.Pointer(unsafe.SliceData(b))
			atomic.OrUint32((*uint32)(unsafe.Add(at, -int(uintptr(at)&3))), 0)
			b = b[min(len(b), page-int(AddrOf(b)&uint64(page-1))):]
		}
	})
	return ok
}
