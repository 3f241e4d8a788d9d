//go:build linux && cgo && !portable

package ibv

import (
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// node is the common part of the objects of a context: its users, and whether it is closed.
// Libraries differ in what they refuse to destroy, so the contract is enforced here.
//
//	            born                shut, no users              C has destroyed it
//	(creating) ──────> alive ─────────────────────────────> closed ──────> gone
//	                     ^      C refuses                      │
//	                     └─────────────────────────────────────┘
type node struct {
	ctx     *deviceContext
	label   string     // immutable once born
	count   *int       // in ctx.counts
	parents []*node    // kept alive by this one while it lives
	id      uint64     // in ctx.ids; 0 when no event names it
	hidden  registered // the object, while it is withdrawn from ctx.ids

	// users counts children and calls in progress; under ctx.mu.
	users int
	// closed is set while and after C destroys the object. Written under ctx.mu; read there, and
	// by Execute, which skips closed objects.
	closed atomic.Bool
	// destroyed is for the race detector, which does not see the accesses of C: written by shut,
	// read without a lock by Execute in race builds (see used). Closing an object during a batch
	// that names it then shows as a race on this field.
	destroyed bool

	// unacked counts events taken and not acknowledged. Raised under the lock of ctx.ids when an
	// event is taken, lowered when it is acknowledged; shut reads it under that lock, so that no
	// event intervenes.
	unacked atomic.Int64
	// async counts the asynchronous events among them.
	async tally
}

// tally counts events of one kind that were taken and not acknowledged, so that none is
// acknowledged twice: libibverbs would count it, and the destroy of the object would wait
// forever. Raised when an event is taken, claimed when it is acknowledged; it publishes nothing.
type tally struct{ n atomic.Int64 }

// claim takes up to n off the tally and returns the number taken.
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

// base returns the node itself, for the registry.
func (n *node) base() *node { return n }

// String names the object.
func (n *node) String() string { return n.label }

// keep adds a user to each of the nodes, or to none of them if one is closed. It skips nil nodes.
// It takes ctx.mu only.
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

// release reverses keep.
func (c *deviceContext) release(nodes ...*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		if n != nil {
			n.users--
		}
	}
}

// born starts the life of an object; keep has been called for its parents.
func (n *node) born(label string, count *int, parents ...*node) {
	n.label, n.count, n.parents = label, count, parents
	n.ctx.mu.Lock()
	defer n.ctx.mu.Unlock()
	*count++
	live.Add(1)
}

// use makes a C call on the object and keeps it from being closed meanwhile.
func (n *node) use(op string, call func() syscall.Errno) error {
	if err := n.ctx.keep(op, n); err != nil {
		return err
	}
	defer n.ctx.release(n)
	return n.ctx.failed(op, n.label, call())
}

// shut closes the object with destroy, once. It returns ErrBusy when the object has users or
// unacknowledged events, and waits for neither.
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

// live counts the objects of all contexts, the contexts, CM channels and CM identifiers of this
// process. Changed when each is made and destroyed; read by Live. It publishes nothing.
var live atomic.Int64

// Live returns the number of live objects of this package in this process, contexts and
// connection identifiers included: 0 means that there is no leak. Any goroutine may call it; it
// does not block.
func Live() int { return int(live.Load()) }
