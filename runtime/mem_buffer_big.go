package runtime

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// bigBuffer is a buffer larger than MaxPooled, with a mapping and a registration of its own. It is
// leased one time:
//
//	allocBig -> leased -> lease ended: on memory.dead -> reapLocked -> unmapped
type bigBuffer struct {
	mapping
	lease lease
	m     *memory
	link  ring.Hook[bigBuffer]
}

// InboxHook returns the link for memory.dead.
func (b *bigBuffer) InboxHook() *ring.Hook[bigBuffer] { return &b.link }

// giveBack implements leaseHome. It pushes the buffer on memory.dead, and lets another goroutine unmap the
// buffer: the caller may hold a reactor's turn, or wait only until its context ends, and unmapping enters
// the kernel.
func (b *bigBuffer) giveBack(uint32) {
	if b.m.cfg.PoisonFreed {
		mem.Poison(b.arena.Bytes())
	}
	b.m.dead.Push(b)
	if !b.m.stepped && b.m.reaping.CompareAndSwap(false, true) {
		go b.m.reap()
	}
}

// registration implements leaseHome.
func (b *bigBuffer) registration() verbs.MR { return b.mr }

// allocBig maps and registers a buffer of n bytes. The caller holds m.mu.
func (m *memory) allocBig(n int) (Buffer, error) {
	// Ignore errors here: if the device refuses to deregister a buffer, memory.Close tries again and
	// reports the error.
	_ = m.reapLocked()
	b := &bigBuffer{m: m}
	var err error
	if b.mapping, err = m.mapRegistered(n, m.cfg.Node, verbs.AccessLocalWrite); err != nil {
		return Buffer{}, fmt.Errorf("runtime: buffer of %d bytes: %w", n, err)
	}
	b.lease.home, b.lease.memory = b, m
	m.bigs++
	m.bigBytes += int64(b.arena.Len())
	if m.cfg.PoisonFreed {
		mem.Poison(b.arena.Bytes())
	}
	return Buffer{Slice{
		addr: b.mr.IOVA(), lkey: b.mr.LKey(), access: verbs.AccessLocalWrite,
		lease: &b.lease, b: b.arena.Bytes()[:n:n],
	}}, nil
}

// reap is the goroutine that bigBuffer.giveBack starts. Close need not wait for it: Close empties m.dead, too, and
// then reap finds nothing.
func (m *memory) reap() {
	m.reaping.Store(false) // before m.dead is emptied: a buffer that comes later has a goroutine of its own
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.reapLocked() // a mapping that cannot be unmapped is kept, and Close reports the error
}

// reapLocked unmaps the big buffers whose lease has ended. The caller holds m.mu, so that only one goroutine
// at a time takes buffers from m.dead.
func (m *memory) reapLocked() error {
	var errs []error
	for b := m.dead.TakeAll(); b != nil; {
		next := b.link.Unlink()
		if m.cfg.PoisonFreed {
			checkPoison("buffer", b.arena.Bytes())
		}
		m.bigs--
		m.bigBytes -= int64(b.arena.Len())
		errs = append(errs, m.discard(b.mapping))
		b = next
	}
	return errors.Join(errs...)
}
