//go:build linux && cgo && !portable

package ibv

import (
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// node is what every object of a context has: who needs it, and whether it is
// closed. Libraries do not agree on what they refuse to destroy, so the contract
// is kept here.
//
//	            born                shut, nobody needs it       C has destroyed it
//	(creating) ──────> alive ─────────────────────────────> closed ──────> gone
//	                     ^      C refuses                      │
//	                     └─────────────────────────────────────┘
type node struct {
	ctx     *deviceContext
	label   string     // immutable once born
	count   *int       // in ctx.counts
	parents []*node    // kept by this one while it lives
	id      uint64     // in ctx.ids; 0 when no event names it
	hidden  registered // the object, while it is withdrawn from ctx.ids

	// users counts children and calls under way; under ctx.mu.
	users int
	// closed is set while and after C destroys the object. Written under ctx.mu;
	// read there, and by turns, which pass a closed object over.
	closed atomic.Bool
	// destroyed is closed for the race detector, which does not see what C does:
	// written by shut, read by turns where there is the detector (see used), without
	// a lock. An object that is closed while a turn names it shows as their race.
	destroyed bool

	// unacked counts events taken and not acknowledged. Raised under the lock of
	// ctx.ids by whoever takes one, lowered by whoever acknowledges it; read
	// under that lock by shut, so that no event slips in between.
	unacked atomic.Int64
	// async are those of them that are asynchronous events.
	async tally
}

// tally counts events of one kind that were taken and not acknowledged, so that
// none is acknowledged twice: libibverbs would count it, and wait for ever when
// the object is destroyed. Raised by whoever takes an event, claimed by whoever
// acknowledges it; it publishes nothing.
type tally struct{ n atomic.Int64 }

// claim takes up to n off the tally and tells how many it took.
func (t *tally) claim(n int) int {
	for {
		have := t.n.Load()
		k := min(int64(n), have)
		if k <= 0 {
			return 0
		}
		if t.n.CompareAndSwap(have, have-k) {
			return int(k)
		}
	}
}

// base makes every object with a node known to the registry.
func (n *node) base() *node { return n }

// String names the object.
func (n *node) String() string { return n.label }

// keep makes each of the nodes needed once more, or none of them if one is
// closed. nil ones are passed over. It takes ctx.mu only.
func (c *deviceContext) keep(op string, nodes ...*node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		if n != nil && n.closed.Load() {
			return opError(op, n.label, syscall.EBADF, "%w", verbs.ErrClosed)
		}
	}
	for _, n := range nodes {
		if n != nil {
			n.users++
		}
	}
	return nil
}

// release ends keep.
func (c *deviceContext) release(nodes ...*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		if n != nil {
			n.users--
		}
	}
}

// born begins the life of an object whose parents were kept for it.
func (n *node) born(label string, count *int, parents ...*node) {
	n.label, n.count, n.parents = label, count, parents
	n.ctx.mu.Lock()
	defer n.ctx.mu.Unlock()
	*count++
	live.Add(1)
}

// use calls C on the object, which cannot be closed meanwhile.
func (n *node) use(op string, call func() syscall.Errno) error {
	if err := n.ctx.keep(op, n); err != nil {
		return err
	}
	defer n.ctx.release(n)
	return n.ctx.failed(op, n.label, call())
}

// shut closes the object with destroy, once. It answers ErrBusy when somebody
// needs it or an event of it is not acknowledged, and does not wait for either.
func (n *node) shut(op string, destroy func() syscall.Errno) error {
	c := n.ctx
	c.mu.Lock()
	if n.closed.Load() {
		c.mu.Unlock()
		return nil
	}
	busy := ""
	if n.users > 0 {
		busy = "it has children or calls under way"
	} else if !c.ids.withdraw(n) {
		busy = "events are not acknowledged"
	} else {
		n.closed.Store(true)
	}
	c.mu.Unlock()
	if busy != "" {
		return opError(op, n.label, syscall.EBUSY, "%w: %s", verbs.ErrBusy, busy)
	}
	n.destroyed = true
	errno := destroy()
	if errno != 0 && !c.gone(errno) {
		c.mu.Lock()
		n.destroyed = false
		n.closed.Store(false)
		c.mu.Unlock()
		c.ids.restore(n)
		return c.failed(op, n.label, errno)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*n.count--
	live.Add(-1)
	for _, p := range n.parents {
		if p != nil {
			p.users--
		}
	}
	return nil
}

// live counts the objects of all contexts, the contexts, CM channels and CM
// identifiers of this process. Changed where each begins and ends; read by
// Live. It publishes nothing.
var live atomic.Int64

// Live is how many objects of this package are alive in this process, contexts
// and connection identifiers included: 0 means that nothing was left behind.
// Any goroutine may call it; it does not block.
func Live() int { return int(live.Load()) }
