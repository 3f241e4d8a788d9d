package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// allocated is what a goroutine has allocated.
type allocated struct {
	buf Buffer
	err error
}

// allocSlow allocates n bytes from the pool p, which had no free block, or, if p is nil, maps a big buffer. It
// waits until asked ends for m.mu, and then for the kernel, which may take long to pin pages: a goroutine of
// its own enters the kernel, and keeps m.mu locked meanwhile. If asked ends first, this goroutine gives back
// what it gets: a pool keeps its new slab for the next call. A nil asked never ends; then, and if m is stepped,
// the caller enters the kernel itself.
func (m *memory) allocSlow(asked reactor.DoneContext, p *pool, n int) (Buffer, error) {
	if err := m.mu.LockUntil(asked); err != nil {
		return Buffer{}, notAllocated(n, err)
	}
	if asked == nil || m.stepped {
		defer m.mu.Unlock()
		return m.allocLocked(p, n)
	}
	got := make(chan allocated) // unbuffered, so that the caller receives each value that is sent
	go func() {
		defer m.mu.Unlock()
		buf, err := m.allocLocked(p, n)
		select {
		case got <- allocated{buf, err}:
		case <-asked:
			buf.drop()
		}
	}()
	select {
	case a := <-got:
		return a.buf, a.err
	case <-asked:
		return Buffer{}, notAllocated(n, asked.Err())
	}
}

func notAllocated(n int, err error) error {
	return fmt.Errorf("runtime: waiting for a buffer of %d bytes: %w", n, err)
}

// allocLocked is allocSlow for a caller that holds m.mu.
func (m *memory) allocLocked(p *pool, n int) (Buffer, error) {
	switch {
	case m.closing.Load():
		return Buffer{}, errMemoryClosed
	case p == nil:
		return m.allocBig(n)
	}
	return m.allocPooled(p, classOf(n), n)
}
