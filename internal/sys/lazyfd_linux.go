//go:build linux && !portable

package sys

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lazyFD is an eventfd that is made on first use.
type lazyFD struct {
	// ref is the descriptor. Stored by open, under mu, once; read by all methods.
	ref atomic.Pointer[fdRef]
	mu  sync.Mutex // guards ended, and the making of ref
	// ended is set by close, so that open makes no descriptor afterwards.
	ended bool
}

// one is the value that raise writes; shared and never changed.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// open returns the descriptor, or -1.
func (l *lazyFD) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return -1
	}
	if r := l.ref.Load(); r != nil {
		return r.fd
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1
	}
	l.ref.Store(&fdRef{fd: fd})
	return fd
}

// raise makes the descriptor readable.
func (l *lazyFD) raise() {
	r := l.ref.Load()
	if r == nil || !r.acquire() {
		return
	}
	defer r.release()
	for {
		// EAGAIN: the counter is full, so it is readable already. Other errors cannot occur: the
		// descriptor is an open eventfd.
		if _, err := unix.Write(r.fd, one); err != unix.EINTR {
			return
		}
	}
}

// lower makes the descriptor unreadable.
func (l *lazyFD) lower() {
	r := l.ref.Load()
	if r == nil || !r.acquire() {
		return
	}
	defer r.release()
	var count uint64
	for {
		// Not unix.Read, whose buffer escapes to the heap in race builds. EAGAIN:
		// it was not readable.
		_, _, errno := unix.Syscall(unix.SYS_READ, uintptr(r.fd), uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count))
		if errno != unix.EINTR {
			return
		}
	}
}

func (l *lazyFD) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if r := l.ref.Load(); r != nil {
		return r.close()
	}
	return nil
}
