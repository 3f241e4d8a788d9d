package rdmacm

import (
	"errors"
	"math/bits"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// A device keeps at most keptBounces free buffers of a size, and keptBytes of all sizes together. More
// are freed when their requests complete.
const (
	keptBounces = 64
	keptBytes   = 16 << 20 // 64 buffers of each size up to 128 KiB
)

// minBounce is the smallest buffer, a page.
const minBounce = 4 << 10

// bouncer has registered buffers for messages whose memory is not registered: the bytes are copied
// there when the request is posted. Buffers that can be kept are of powers of two. All methods may be called from any
// goroutine.
type bouncer struct {
	mu      sync.Mutex // guards the fields below; held for a few instructions
	free    map[bounceKey][]*bounce
	kept    int           // bytes in free
	surplus []*bounce     // sweep frees them
	swept   chan struct{} // nil while sweep does not run; closed when it ends
	errs    []error       // of freeing buffers
}

// bounceKey tells buffers apart that cannot replace each other.
type bounceKey struct {
	pd   verbs.PD
	size int
}

// bounce is a buffer. It is the lease of the request that has it.
type bounce struct {
	b   *bouncer
	key bounceKey
	mem *verbs.Memory
	mr  verbs.MR
}

// copy copies buf to a buffer, and returns the element for it, and the lease to end.
func (b *bouncer) copy(pd verbs.PD, buf []byte) (verbs.SGE, *bounce, error) {
	key := bounceKey{pd, max(minBounce, len(buf))}
	if key.size <= keptBytes {
		key.size = 1 << bits.Len(uint(key.size-1))
	}
	at, err := b.get(key)
	if err != nil {
		return verbs.SGE{}, nil, err
	}
	copy(at.mem.Bytes(), buf)
	return verbs.SGE{Addr: at.mem.Addr(), Length: uint32(len(buf)), LKey: at.mr.LKey()}, at, nil
}

func (b *bouncer) get(key bounceKey) (*bounce, error) {
	b.mu.Lock()
	if list := b.free[key]; len(list) > 0 {
		at := list[len(list)-1]
		b.free[key] = list[:len(list)-1]
		b.kept -= key.size
		b.mu.Unlock()
		return at, nil
	}
	b.mu.Unlock()
	m, err := verbs.AllocMemory(key.size)
	if err != nil {
		return nil, err
	}
	mr, err := key.pd.RegMR(m.Addr(), uint64(key.size), m.Addr(), verbs.AccessLocalWrite)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &bounce{b: b, key: key, mem: m, mr: mr}, nil
}

// End implements reactor.Lease: the device does not use the buffer any more. The caller may hold the reactor's turn, so
// End makes no system call: a goroutine frees buffers beyond the bounds.
func (at *bounce) End() {
	b := at.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free[at.key]) == keptBounces || at.key.size > keptBytes {
		b.discard(at)
		return
	}
	b.shrink(keptBytes - at.key.size)
	if b.free == nil {
		b.free = map[bounceKey][]*bounce{}
	}
	b.free[at.key] = append(b.free[at.key], at)
	b.kept += at.key.size
}

// shrink discards buffers, of any size, until at most most bytes are kept: so sizes that are not used any
// more make room for those that are. The caller holds mu.
func (b *bouncer) shrink(most int) {
	for key, list := range b.free {
		for b.kept > most && len(list) > 0 {
			b.discard(list[len(list)-1])
			list = list[:len(list)-1]
			b.kept -= key.size
		}
		b.free[key] = list
	}
}

// refused is End for a request of a queue pair that has failed: DestroyQP may have called drop before, so refused frees
// the buffer itself. The caller does not hold the reactor's turn.
func (at *bounce) refused() {
	if err := at.close(); err != nil {
		at.b.mu.Lock()
		defer at.b.mu.Unlock()
		at.b.errs = append(at.b.errs, err)
	}
}

// discard has sweep free a buffer. The caller holds mu.
func (b *bouncer) discard(at ...*bounce) {
	b.surplus = append(b.surplus, at...)
	if b.swept == nil && len(b.surplus) > 0 {
		b.swept = make(chan struct{})
		go b.sweep()
	}
}

// sweep frees the surplus, until there is none.
func (b *bouncer) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.surplus) > 0 {
		at := b.surplus[0]
		b.surplus = b.surplus[1:]
		b.mu.Unlock()
		err := at.close()
		b.mu.Lock()
		if err != nil {
			b.errs = append(b.errs, err)
		}
	}
	b.surplus = nil
	close(b.swept)
	b.swept = nil
}

func (at *bounce) close() error {
	if err := at.mr.Close(); err != nil {
		return err // the device may use the memory
	}
	return at.mem.Close()
}

// drop frees the unused buffers of a protection domain, which its owner is about to close, and waits until that is done.
// With nil it frees all.
func (b *bouncer) drop(pd verbs.PD) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, list := range b.free {
		if pd == nil || key.pd == pd {
			b.kept -= len(list) * key.size
			b.discard(list...)
			delete(b.free, key)
		}
	}
	for b.swept != nil {
		swept := b.swept
		b.mu.Unlock()
		<-swept
		b.mu.Lock()
	}
	err := errors.Join(b.errs...)
	b.errs = nil
	return err
}
