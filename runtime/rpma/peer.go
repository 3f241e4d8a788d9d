package rpma

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Peer is this end of remote persistent memory: a runtime, with the memory regions, endpoints and
// connections of this package. Its methods, and those of all its objects, may be called from any
// goroutine.
type Peer struct {
	rt    *runtime.Runtime
	iWARP bool
	// children counts the open objects of the peer, and those that are being made; closedPeer or near it
	// after Close. Any goroutine adds and subtracts (enter, leave); Close swaps 0 for closedPeer, so that
	// no object is made afterwards. It publishes nothing.
	children atomic.Int64
	waits    *futures.Pool[*bell]
}

// NewPeer returns a peer that uses rt. The caller keeps rt open, closes the peer's objects, then the
// peer, and then rt. NewPeer does not block.
//
// Errors: ErrInvalid if rt is nil.
//
// Implements: rpma_peer_new.
func NewPeer(rt *runtime.Runtime) (*Peer, error) {
	if rt == nil {
		return nil, invalid("rpma_peer_new", "a peer without a runtime")
	}
	p := &Peer{rt: rt, iWARP: rt.Device().Transport == verbs.TransportIWARP}
	p.waits = futures.NewPool(futures.Options[*bell]{Dispose: disposeWait})
	if !p.atomicWrites() {
		logf(LevelInfo, "the device does not execute ATOMIC_WRITE: fenced WRITEs take its place", nil)
	}
	if !p.flushes() {
		logf(LevelInfo, "the device does not execute FLUSH: READs take its place", nil)
	}
	return p, nil
}

// closedPeer is the number of children of a closed peer, however many calls are entering it.
const closedPeer = math.MinInt64 / 2

// enter counts an object that op is about to make. After Close it returns an error.
func (p *Peer) enter(op string) error {
	if p.children.Add(1) < 0 {
		p.leave()
		return fail(op, ErrInvalid, fmt.Errorf("the peer: %w", verbs.ErrClosed))
	}
	return nil
}

// leave undoes enter: the object was closed, or not made.
func (p *Peer) leave() { p.children.Add(-1) }

// Runtime returns the runtime of the peer.
func (p *Peer) Runtime() *runtime.Runtime { return p.rt }

func (p *Peer) flushes() bool      { return p.rt.DeviceAttr().Opcodes.Has(verbs.WRFlush) }
func (p *Peer) atomicWrites() bool { return p.rt.DeviceAttr().Opcodes.Has(verbs.WRAtomicWrite) }

// fits returns an error if a completion queue is to hold more completions than one of the device can.
func (p *Peer) fits(op string, sizes ...int) error {
	most := p.rt.DeviceAttr().MaxCQE
	for _, n := range sizes {
		if n > most {
			return fail(op, ErrProvider, fmt.Errorf("%w: a CQ of %d completions, the device has at most %d", verbs.ErrInvalid, n, most))
		}
	}
	return nil
}

// ODPCapable reports whether the device can read and write memory that is not locked, over reliable
// connections.
//
// Implements: rpma_utils_ibv_context_is_odp_capable.
func (p *Peer) ODPCapable() bool {
	const need = verbs.ODPWrite | verbs.ODPRead
	odp := p.rt.DeviceAttr().ODP
	return odp.Has() && odp.RC&need == need
}

// Close ends the peer: no objects can be made any more. While it has open objects, or one is being made, Close
// changes nothing and returns an ErrProvider that matches runtime.ErrBusy. Close is idempotent, does not
// block, and leaves the runtime open.
//
// Implements: rpma_peer_delete.
func (p *Peer) Close() error {
	for !p.children.CompareAndSwap(0, closedPeer) {
		switch n := p.children.Load(); {
		case n < 0:
			return nil
		case n > 0:
			return fail("rpma_peer_delete", ErrProvider, fmt.Errorf("%w: the peer has %d open objects", verbs.ErrBusy, n))
		}
	}
	return nil
}
