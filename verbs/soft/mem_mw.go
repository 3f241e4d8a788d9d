package soft

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryWindow is an MW: a key of its own to a part of a region, given and
// taken away by work requests (mem_mw_bind.go).
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
// Whatever the type, Close unbinds. A type 2 window opens its memory to the
// peer of the queue pair it was bound through only: type 2B, as rdma_rxe has
// them (Linux, rxe_mw.c).
type memoryWindow struct {
	pd   *protectionDomain
	kind verbs.MWType
	// index is the upper part of its key: it names the window, for it never
	// changes.
	index uint32
	// key is the current key. Written by the engine when the window is bound;
	// read by RKey from anywhere. It publishes nothing.
	key    atomic.Uint32
	closed atomic.Bool // set by Close under the port's token; read by everybody

	// The binding; under the port's token.
	mr     *memoryRegion // nil: not bound
	qp     *queuePair    // type 2: bound through it
	place  int           // type 2: where it stands in qp.bound
	addr   uint64        // as requests call it in mr
	length uint64
	access verbs.AccessFlags
	guard  *guard // of READ responses through the window
}

var _ verbs.MW = (*memoryWindow)(nil)

// AllocMW makes a memory window that is not bound.
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

// addWindow gives w its first key. The engine is at rest.
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

// Close frees the window, bound or not: its key is dead at once, and nothing
// reaches the memory through it once Close has returned. It waits for a
// receiver that is copying at this moment, for nothing else.
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
		d.unbind(w)
		d.keys.remove(w.index)
		d.windows--
		w.pd.mws--
		w.pd.ctx.counts.MW--
	})
}

// Type is 1 or 2.
func (w *memoryWindow) Type() verbs.MWType { return w.kind }

// RKey is the key of the last binding that was executed; before the first, the
// key it was made with. A key taken away stays the one to count on from.
func (w *memoryWindow) RKey() uint32 { return w.key.Load() }

// Handle names the window in a BIND_MW, whatever its key is.
func (w *memoryWindow) Handle() uint64 { return uint64(w.index) }

// String names the window without its key, which is a secret.
func (w *memoryWindow) String() string { return fmt.Sprintf("MW of type %d in %v", w.kind, w.pd) }

// memoryCaps are the capabilities that memory operations have. Persistent FLUSH
// needs files to be mapped.
func memoryCaps() verbs.DeviceCaps {
	c := verbs.CapMemWindow | verbs.CapMemWindow2B | verbs.CapMemMgt | verbs.CapFlushGlobal | verbs.CapAtomicWrite
	if mem.FileSupported {
		c |= verbs.CapFlushPersistent
	}
	return c
}
