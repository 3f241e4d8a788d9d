package rpma

import (
	"context"
	"errors"
	"math/bits"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// CQ is a completion queue: the main one of a connection, the receive CQ of a connection or that of an SRQ.
//
// It cannot overrun. An operation has its place in the CQ from its start until its completion is taken, or
// until it has succeeded with CompletionOnError; without a free place of its queue, it does not start.
//
// Implements: struct rpma_cq.
type CQ struct {
	bell   *bell
	shared bool // the bell is the connection's
	size   int  // what the places of its queues sum up to, at least

	// ring has the completions in [head, tail); its length is a power of two, and at least size. The holder
	// of the reactor's turn writes an entry and then tail, which publishes the entry.
	ring []completion
	tail atomic.Uint64
	head atomic.Uint64 // written under mu; the holder does not need it, because places bound the distance
	mu   sync.Mutex    // taken by goroutines that take completions
	// ended is set by end, after which the program takes nothing: completions give their places back at
	// once. The holder reads it after it has written tail, and end reads tail after it has set ended, so
	// one of them sees the other.
	ended atomic.Bool
	// emptyPasses counts passes of GetWC that have found nothing. Any goroutine adds. It publishes nothing.
	emptyPasses atomic.Uint32
}

// completion is an entry of a CQ.
type completion struct {
	wc WC
	of *places
}

// WC is a completion. After a failure, only the first four fields have values.
//
// Implements: struct ibv_wc.
type WC struct {
	Context   uint64         // the word that the operation was started with
	Status    verbs.WCStatus // verbs.WCSuccess, or why the operation failed
	VendorErr uint32
	QPNum     uint32 // of the connection: see Conn.QPNum
	// Opcode is the kind of operation. An atomic write, or a flush, in whose place another request was sent
	// has the opcode of that request.
	Opcode verbs.WCOpcode
	Flags  verbs.WCFlags // WCWithImm: Imm has a value
	Bytes  uint32        // receives: the length of the message, or of the WRITE
	Imm    uint32        // in host order
}

// Err returns the failure as an error, or nil for a success.
func (w *WC) Err() error {
	if w.Status == verbs.WCSuccess {
		return nil
	}
	return &verbs.WCError{Status: w.Status, QPNum: w.QPNum, VendorErr: w.VendorErr, WRID: w.Context}
}

// places are those of a send or receive queue: as many operations may be started and not taken.
type places struct {
	used atomic.Int32 // any goroutine adds; whoever ends an operation, or takes its completion, subtracts
	most int32
}

// take takes a place, if one is free.
func (p *places) take() bool {
	if p.used.Add(1) > p.most {
		p.used.Add(-1)
		return false
	}
	return true
}

func (p *places) free() { p.used.Add(-1) }

func newCQ(b *bell, shared bool, size int) *CQ {
	c := &CQ{bell: b, shared: shared, size: size, ring: make([]completion, 1<<bits.Len(uint(size-1)))}
	b.cqs = append(b.cqs, c)
	return c
}

func (c *CQ) empty() bool { return c.tail.Load() == c.head.Load() }

// Size returns how many completions fit at least: not fewer than the configuration asks for, nor than the
// queues of the connection can produce.
func (c *CQ) Size() int { return c.size }

// push adds the completion of an operation, which has a place in of. Holder only.
func (c *CQ) push(r *reactor.Completion, qpn uint32, err error, of *places) {
	t := c.tail.Load()
	e := &c.ring[t&uint64(len(c.ring)-1)]
	e.of, e.wc = of, WC{Context: r.Tag, QPNum: qpn}
	if err == nil {
		e.wc.Opcode, e.wc.Flags, e.wc.Bytes, e.wc.Imm = r.Opcode, r.Flags, r.Bytes, r.Imm
	} else {
		e.wc.Status, e.wc.VendorErr = statusOf(err)
	}
	c.tail.Store(t + 1)
	if c.ended.Load() {
		c.drop()
		return
	}
	c.bell.ring()
}

// end ends the CQ with its connection. Completions that were not taken, and those to come, are lost; their
// places are free. Those of receives of an SRQ serve other connections.
func (c *CQ) end() {
	if c != nil {
		c.ended.Store(true)
		c.drop()
	}
}

// drop takes all completions.
func (c *CQ) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h, t := c.head.Load(), c.tail.Load(); h < t; {
		of := c.ring[h&uint64(len(c.ring)-1)].of
		h++
		c.head.Store(h)
		of.free()
	}
}

// statusOf returns the status of a completion with an error.
func statusOf(err error) (verbs.WCStatus, uint32) {
	if errors.Is(err, reactor.ErrQueueFailed) { // the device has not seen the request
		return verbs.WCWRFlushErr, 0
	}
	if e, ok := errors.AsType[*verbs.WCError](err); ok {
		return e.Status, e.VendorErr
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok { // the device refused the request
		return verbs.WCLocQPOpErr, uint32(errno)
	}
	return verbs.WCWRFlushErr, 0
}

// errNone is made once, for programs that poll.
var errNone = &Error{Op: "rpma_cq_get_wc", Code: ErrNoCompletion, Errno: kinds[ErrNoCompletion].errno}

// GetWC takes up to len(wcs) completions, in the order in which they came, and returns their number, which
// is at least 1 if err is nil. If there is none, it makes a pass of the reactor, unless another goroutine
// does. If there is still none, it lets other goroutines run: always if another goroutine has the turn, and
// otherwise in one call of yieldEvery. It does not block.
//
// Errors: ErrInvalid for no room; ErrNoCompletion.
//
// Implements: rpma_cq_get_wc.
func (c *CQ) GetWC(wcs []WC) (n int, err error) {
	if len(wcs) == 0 {
		return 0, invalid("rpma_cq_get_wc", "no room for completions")
	}
	if n = c.take(wcs); n > 0 {
		return n, nil
	}
	passed := c.bell.r.TryPass()
	if n = c.take(wcs); n > 0 {
		return n, nil
	}
	// Another goroutine may have the turn and wait for this processor. Without the yield it waits until
	// the one that polls is preempted, after 10 ms.
	if !passed || c.emptyPasses.Add(1)%yieldEvery == 0 {
		goruntime.Gosched()
	}
	return 0, errNone
}

// yieldEvery is how many passes that find nothing GetWC runs for each yield to other goroutines. A yield takes
// as long as such a pass: with 1, BenchmarkEmptyPoll takes 134 to 255 ns, and with 8 it takes 69 to 137.
const yieldEvery = 8

func (c *CQ) take(wcs []WC) (n int) {
	if c.empty() {
		return 0
	}
	c.mu.Lock()
	h, t := c.head.Load(), c.tail.Load()
	for ; n < len(wcs) && h < t; n++ {
		e := &c.ring[h&uint64(len(c.ring)-1)]
		wcs[n] = e.wc
		of := e.of
		h++
		c.head.Store(h) // before the place is free: the entry may then be used again
		of.free()
	}
	c.mu.Unlock()
	if h == t {
		c.bell.quiet()
	}
	return n
}

// Wait waits until the CQ has a completion. GetWC may still find none, if another goroutine takes it.
// Completions that are there already end the wait at once, so that Wait before GetWC loses nothing.
//
// Errors: ErrInvalid for a nil context; ErrSharedChannel if the connection has a shared completion channel;
// ErrNoCompletion if the CQ is closed meanwhile; the error of the context.
//
// Implements: rpma_cq_wait.
func (c *CQ) Wait(ctx context.Context) error {
	const op = "rpma_cq_wait"
	if c.shared {
		return fail(op, ErrSharedChannel, nil)
	}
	_, err := c.bell.wait(ctx)
	return waited(op, err)
}

// waited returns the error of a wait.
func waited(op string, err error) error {
	switch {
	case errors.Is(err, verbs.ErrClosed):
		return fail(op, ErrNoCompletion, err)
	case errors.Is(err, runtime.ErrNilContext):
		return classified(op, err)
	}
	return err
}

// FD returns a descriptor that polls readable while the CQ, or a CQ with the same shared channel, has a
// completion. It belongs to the CQ, which may close it: the program must not read or close it. GetWC makes
// it unreadable when it has taken the last completion.
//
// Errors: ErrNotSupported where the system has no such descriptors, and after the end of the CQ.
//
// Implements: rpma_cq_get_fd.
func (c *CQ) FD() (int, error) { return descriptorOf("rpma_cq_get_fd", c.bell.event) }
