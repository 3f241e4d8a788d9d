package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// allocFor allocates n bytes for an operation that is submitted with mode. With NonBlock it takes a
// free block, and never m.mu, which other goroutines hold while they enter the kernel. If there is
// none, it returns [ErrNoBuffer], and another goroutine makes one. Otherwise it waits for m.mu until
// asked ends.
func (rt *Runtime) allocFor(asked reactor.DoneContext, n int, mode reactor.SubmitMode) (Buffer, error) {
	m := rt.mem
	if mode&reactor.NonBlock == 0 || rt.cfg.stepped { // a stepped runtime has no other goroutines
		return m.allocUntil(asked, n)
	}
	if m.closing.Load() {
		return Buffer{}, errMemoryClosed
	}
	if n > MaxPooled {
		return Buffer{}, ErrPieces
	}
	class := classOf(n)
	for c := class; c < numClasses; c++ { // a larger block is better than none
		if s, i, ok := m.pools[c].get(); ok {
			return s.lend(i, n), nil
		}
	}
	if p := &m.pools[class]; p.growing.CompareAndSwap(false, true) {
		go func() {
			defer p.growing.Store(false)
			if rt.enter() != nil {
				return
			}
			defer rt.leave()
			if buf, err := m.Alloc(n); err == nil { // an error is that of a later operation that waits
				buf.drop()
			}
		}()
	}
	return Buffer{}, fmt.Errorf("%w of %d bytes", ErrNoBuffer, n)
}
