package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryWindow is an MW: a separate key to a part of a region, bound and invalidated by work
// requests (mem_mw_bind.go).
//
//	               BIND_MW                        BIND_MW, again
//	type 1  unbound ───────────────────────> bound ──────────────> bound
//	               <───────────────────────
//	                BIND_MW of length 0
//
//	               BIND_MW                         BIND_MW
//	type 2  free ──────────────────────────> bound ──────────────> error
//	             <──────────────────────────
//	              LOCAL_INV, or SEND_WITH_INV by the peer, or the
//	              queue pair it was bound through is destroyed
//
// Both ends may end a binding of type 2, in either order: a LOCAL_INV of a free window's key succeeds, and a
// SEND_WITH_INV of a key that its program has taken back is delivered. (On adapters and rdma_rxe both are
// errors that end the connection.)
//
// Close unbinds a window of either type. A type 2 window opens its memory only to the peer of the
// queue pair it was bound through: type 2B, as in rdma_rxe (Linux, rxe_mw.c).
type memoryWindow struct {
	pd   *protectionDomain
	kind verbs.MWType
	// index is the upper part of its key. It identifies the window, because it never changes.
	index uint32
	// key is the current key. The engine writes it when the window is bound; RKey reads it from
	// any goroutine. It publishes nothing.
	key    atomic.Uint32
	closed atomic.Bool // set by Close under the port's token; any goroutine may read it

	// The binding; under the port's token.
	mr     *memoryRegion // nil: not bound
	qp     *queuePair    // type 2: the queue pair it is bound through
	place  int           // type 2: its index in qp.bound
	addr   uint64        // a request address in mr
	length uint64
	access verbs.AccessFlags
	guard  *guard // of READ responses through the window
}

var _ verbs.MW = (*memoryWindow)(nil)

// AllocMW makes an unbound memory window.
//
// Implements: ibv_alloc_mw.
func (p *protectionDomain) AllocMW(t verbs.MWType) (verbs.MW, error) {
	const op = "ibv_alloc_mw"
	if t != verbs.MWType1 && t != verbs.MWType2 {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w: memory windows of type %d", verbs.ErrInvalid, t)
	}
	w := &memoryWindow{pd: p, kind: t, guard: new(guard)}
	var err error
	if e := p.exclusive(op, func() { err = p.ctx.dev.addWindow(w) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, opError(op, p.String(), syscall.ENOMEM, "%w", err)
	}
	return w, nil
}

// addWindow assigns w its first key. The caller holds the token.
func (d *device) addWindow(w *memoryWindow) error {
	if d.windows >= d.cfg.Limits.MaxMW {
		return fmt.Errorf("all %d memory windows are in use", d.cfg.Limits.MaxMW)
	}
	key, err := d.keys.fresh(d.random)
	if err != nil {
		return err
	}
	w.index = keyIndex(key)
	w.key.Store(key)
	d.keys.put(keySlot{key: key, mw: w})
	d.windows++
	w.pd.mws++
	w.pd.ctx.counts.MW++
	return nil
}

// Close frees the window, bound or not. Its key is invalid at once, and the memory cannot be
// reached through it after Close has returned. It waits only for a receiver that is copying at
// this moment.
//
// Implements: ibv_dealloc_mw.
func (w *memoryWindow) Close() error {
	if w.closed.Load() {
		return nil
	}
	return w.pd.ctx.closing("ibv_dealloc_mw", func() {
		if w.closed.Swap(true) {
			return
		}
		d := w.pd.ctx.dev
		if w.qp != nil {
			w.qp.takeBack(w)
		}
		d.unbind(w)
		d.keys.remove(w.index)
		d.windows--
		w.pd.mws--
		w.pd.ctx.counts.MW--
	})
}

// Type returns 1 or 2.
func (w *memoryWindow) Type() verbs.MWType { return w.kind }

// RKey returns the key of the last executed binding or, before the first, the initial key. After
// an invalidation it stays the base for the next key.
func (w *memoryWindow) RKey() uint32 { return w.key.Load() }

// Handle returns the number that names the window in a BIND_MW, independent of its key.
func (w *memoryWindow) Handle() uint64 { return uint64(w.index) }

// String describes the window without its key, which is a secret.
func (w *memoryWindow) String() string { return fmt.Sprintf("MW of type %d in %v", w.kind, w.pd) }

// memoryCaps returns the capabilities of memory operations. Persistent FLUSH needs mapped files.
func memoryCaps() verbs.DeviceCaps {
	c := verbs.CapMemWindow | verbs.CapMemWindow2B | verbs.CapMemMgt | verbs.CapFlushGlobal | verbs.CapAtomicWrite
	if mem.FileSupported {
		c |= verbs.CapFlushPersistent
	}
	return c
}
