package rdmacm

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// CQ is a completion queue of queue pairs of one device. It holds the completions that the reactor
// has taken from the device, in their order, until Next or Poll takes them. It cannot overrun: a
// request is refused (ErrQueueFull) while the CQ holds as many completions as it has entries, except a receive
// of a shared receive queue, for which the CQ grows.
//
//	reactor ── push ──> ring ── Poll, Next, GetSendComp, GetRecvComp ──> program
//
// All methods may be called from any goroutine.
//
// Implements: struct ibv_cq, with a completion channel of its own.
type CQ struct {
	dev *Device
	// entries is how many completions the CQ may hold when a request is posted. Immutable.
	entries uint64
	private bool // made by CreateQP for one queue pair and one direction

	// ring is a power of two long. The holder of the reactor's turn replaces it by a longer one, with mu
	// locked, if it is full: a request is refused by entries, so requests that were outstanding then, and
	// goroutines that were about to post, may add some more. So the holder may read ring, and any goroutine
	// with mu.
	ring []verbs.WC

	// tail counts the completions pushed. The holder writes it; the store publishes the completion.
	tail atomic.Uint64
	// head counts the completions taken. Written with mu; the store frees the place.
	head atomic.Uint64
	// waiting is the length of waits, and one more if bell is asked for. Written with mu. A goroutine raises it
	// and then reads tail; the holder writes tail and then reads it. So one of them sees the other.
	waiting atomic.Int32

	mu     sync.Mutex // serializes the takers, and guards the fields below
	waits  []futures.Promise[*CQ]
	prune  int  // the length of waits at which register removes those that are not wanted any more
	asked  bool // the next completion rings bell; see Ready
	closed bool
	users  int // queue pairs, once for each direction

	bell chan struct{} // immutable; holds a value after a completion that was asked for
}

// CreateCQ makes a completion queue for queue pairs of the device, for QPInitAttr. A queue pair that
// is given none has two of its own. The caller destroys it. It does not block. The most entries are those of a
// completion queue of the device (verbs.DeviceAttr.MaxCQE); more, or none, are verbs.ErrInvalid.
//
// Implements: ibv_create_cq.
func (d *Device) CreateCQ(entries int) (*CQ, error) {
	if most := d.limits.MaxCQE; entries < 1 || entries > most {
		return nil, failure("ibv_create_cq", nil, syscall.EINVAL, fmt.Errorf("%w: %d entries, want 1 to %d", verbs.ErrInvalid, entries, most))
	}
	return newCQ(d, entries), nil
}

func newCQ(d *Device, entries int) *CQ {
	c := &CQ{dev: d, entries: uint64(entries), bell: make(chan struct{}, 1)}
	c.ring = make([]verbs.WC, ringSize(c.entries))
	return c
}

// ringSize returns the length of a ring for n completions: a power of two, so that a position is
// found with a mask.
func ringSize(n uint64) uint64 { return 1 << bits.Len64(max(n, 1)-1) }

// attach counts a queue pair that completes to c in one direction, or a shared receive queue. Any goroutine
// may call it.
func (c *CQ) attach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

// detach undoes attach.
func (c *CQ) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
}

// destroyed reports whether Destroy was called.
func (c *CQ) destroyed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// full reports whether a request must be refused.
func (c *CQ) full() bool { return c.tail.Load()-c.head.Load() >= c.entries }

// push adds a completion. Holder only.
func (c *CQ) push(wc *verbs.WC) {
	t := c.tail.Load()
	if t-c.head.Load() == uint64(len(c.ring)) {
		c.grow()
	}
	c.ring[t&uint64(len(c.ring)-1)] = *wc
	c.tail.Store(t + 1)
	if c.waiting.Load() > 0 {
		c.wake()
	}
}

// grow doubles the ring. Holder only.
func (c *CQ) grow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	grown := make([]verbs.WC, 2*len(c.ring))
	for i := c.head.Load(); i < c.tail.Load(); i++ {
		grown[i&uint64(len(grown)-1)] = c.ring[i&uint64(len(c.ring)-1)]
	}
	c.ring = grown
}

// wake rings bell, if that is asked for, and wakes one of the goroutines that wait.
func (c *CQ) wake() {
	c.mu.Lock()
	var p futures.Promise[*CQ]
	n := len(c.waits)
	if n > 0 {
		p = c.waits[0]
		c.waits = slices.Delete(c.waits, 0, 1)
	}
	if c.asked {
		c.asked = false
		ring(c.bell)
	}
	c.count()
	c.mu.Unlock()
	if n > 0 {
		p.Settle(c, nil)
	}
}

// count writes waiting. The caller holds mu.
func (c *CQ) count() {
	n := len(c.waits)
	if c.asked {
		n++
	}
	c.waiting.Store(int32(n))
}

// disposeWait wakes another goroutine in the place of one that was woken and has stopped waiting.
func disposeWait(c *CQ, err error) {
	if err == nil && c.tail.Load() != c.head.Load() {
		c.wake()
	}
}

// Poll takes up to len(wcs) completions, and returns how many it has taken. It does not block. A
// completion that the reactor has not yet taken from the device is not found; a program that polls in
// a loop without anything else calls Next.
//
// Implements: ibv_poll_cq.
func (c *CQ) Poll(wcs []verbs.WC) int {
	if c == nil {
		return 0
	}
	n := c.take(wcs)
	if n == 0 && len(wcs) > 0 && c.dev.r.TryPass() {
		n = c.take(wcs)
	}
	return n
}

// take takes up to len(wcs) completions.
func (c *CQ) take(wcs []verbs.WC) (n int) {
	if c.tail.Load() == c.head.Load() {
		return 0
	}
	c.mu.Lock()
	h := c.head.Load()
	for n = 0; n < len(wcs) && h < c.tail.Load(); n++ {
		wcs[n] = c.ring[h&uint64(len(c.ring)-1)]
		h++
	}
	if n > 0 {
		c.head.Store(h)
	}
	c.mu.Unlock()
	return n
}

// takeOne takes a completion, if there is one.
func (c *CQ) takeOne(wc *verbs.WC) bool {
	if c.tail.Load() == c.head.Load() {
		return false
	}
	c.mu.Lock()
	h := c.head.Load()
	found := h < c.tail.Load()
	if found {
		*wc = c.ring[h&uint64(len(c.ring)-1)]
		c.head.Store(h + 1)
	}
	c.mu.Unlock()
	return found
}

// Next waits for a completion and takes it, or returns the error of ctx when ctx ends first. A
// completion with an error is no error of Next: see verbs.WC.Err. When the CQ is destroyed, Next
// returns verbs.ErrClosed.
//
// Implements: ibv_req_notify_cq, ibv_get_cq_event, ibv_ack_cq_events and ibv_poll_cq.
func (c *CQ) Next(ctx context.Context) (wc verbs.WC, err error) {
	if c == nil {
		return verbs.WC{}, errNil("ibv_req_notify_cq")
	}
	if c.takeOne(&wc) {
		return wc, nil
	}
	err = c.wait(ctx, &wc)
	return wc, err
}

// wait is Next for a CQ that was empty.
func (c *CQ) wait(ctx context.Context, wc *verbs.WC) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	for {
		f, err := c.register()
		if err != nil {
			return err
		}
		if c.takeOne(wc) { // it came before register: another goroutine may wait for the next
			f.Discard()
			return nil
		}
		if _, err = reactor.Await(ctx, asked, f); err != nil {
			return err
		}
		if c.takeOne(wc) {
			return nil
		}
	}
}

// register makes a future that is settled when there may be a completion.
func (c *CQ) register() (futures.Future[*CQ], error) {
	p, f := c.dev.waits.New(c.dev.r.Driver())
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.waits = append(c.waits, p)
		if len(c.waits) >= max(c.prune, pruneFrom) {
			c.waits = slices.DeleteFunc(c.waits, unwanted)
			c.prune = 2 * len(c.waits)
		}
		c.count()
	}
	c.mu.Unlock()
	if closed {
		p.Settle(nil, verbs.ErrClosed)
		_, err := f.Await(background)
		return f, err
	}
	return f, nil
}

// Ready asks for one value in the channel that it returns, for a select: the value comes when there is a completion, at
// once if there is one already, and when Destroy is called. Then take completions with Poll until it returns 0, and
// call Ready again. The value may come without a completion. All calls return the same channel, so select in one
// goroutine. It does not block. After Destroy the error is verbs.ErrClosed.
//
// Every completion counts, as with solicited_only of 0. A wait for solicited completions alone is not offered: a
// completion does not have the mark, and the completion queues of the device belong to the reactor. A program that
// needs it makes its own by Device.Context, and calls verbs.Arm.
//
// Implements: ibv_req_notify_cq, and the member fd of struct ibv_comp_channel.
func (c *CQ) Ready() (<-chan struct{}, error) {
	if c == nil {
		return nil, errNil("ibv_req_notify_cq")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, failure("ibv_req_notify_cq", nil, syscall.EBADF, verbs.ErrClosed)
	}
	c.asked = true
	c.count()
	if c.tail.Load() != c.head.Load() { // it may have come before count
		c.asked = false
		c.count()
		ring(c.bell)
	}
	return c.bell, nil
}

// pruneFrom is the smallest number of waits that is pruned: fewer take little memory.
const pruneFrom = 64

// unwanted ends a wait whose future was discarded, because its context ended.
func unwanted(p futures.Promise[*CQ]) bool {
	if p.Wanted() {
		return false
	}
	p.Settle(nil, futures.ErrDiscarded)
	return true
}

// Destroy destroys the CQ. While queue pairs use it, Destroy returns verbs.ErrBusy. Next and Poll return
// completions that were not taken, and then verbs.ErrClosed and nothing; goroutines that wait in Next return
// verbs.ErrClosed. It is idempotent.
//
// Implements: ibv_destroy_cq.
func (c *CQ) Destroy() error {
	if c == nil {
		return errNil("ibv_destroy_cq")
	}
	c.mu.Lock()
	if c.users > 0 {
		c.mu.Unlock()
		return failure("ibv_destroy_cq", nil, errnoOf(verbs.ErrBusy), verbs.ErrBusy)
	}
	c.closed = true
	waits := c.waits
	c.waits, c.asked = nil, false
	c.count()
	ring(c.bell)
	c.mu.Unlock()
	for _, p := range waits {
		p.Settle(nil, verbs.ErrClosed)
	}
	return nil
}
