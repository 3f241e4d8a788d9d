package runtime

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// largeSends are the large messages that a connection sends.
type largeSends struct {
	// places has a value for each message that may still be sent before an answer comes. There are as many
	// places as receives for answers. It is nil if the connection is gone. Immutable.
	places   chan struct{}
	reserved int // receives that are reserved in the pool; immutable

	mu    sync.Mutex // guards the fields below; held for a few instructions
	out   []*largeSend
	spare []*Window // windows of earlier messages
	idle  func()    // called when out is empty; set by whenSent
}

// largeSend is a large message that the peer has not fetched yet.
type largeSend struct {
	c       *Conn
	w       *Window
	key     uint32 // of w
	n       int
	promise futures.Promise[Result]
	sink    Sink // if not nil, gets the result in place of the promise
	tag     uint64
	// left is 3 at the beginning. The goroutine that sends subtracts 1 when the frame was submitted, and the
	// holder when the binding has completed and when the message has ended. The last delivers the result. So
	// left publishes err and unsent, and the window is unbound when the result is delivered.
	left   atomic.Int32
	err    error
	unsent bool // the frame was not submitted: the message has no result, and its window is closed
}

// sendLarge sends locals, which have total bytes, as one large message. s is a SEND of any kind. The window
// keeps the memory until the peer has fetched the message, or the connection has no outstanding requests any
// more.
func (c *Conn) sendLarge(asked reactor.DoneContext, locals []Slice, total int, s reactor.Send, w submitOpts) (f Future, err error) {
	if w.mode&reactor.NonBlock != 0 {
		return f, ErrPieces
	}
	part := locals[0]
	if len(locals) > 1 || !part.bindable() {
		if s.Flags&verbs.SendFence != 0 {
			return f, fmt.Errorf("%w: a fenced message of %d bytes, larger than the peer's receives, must be one piece of memory, and not on demand or zero-based", verbs.ErrInvalid, total)
		}
		copied, err := c.rt.gather(asked, locals, total)
		if err != nil {
			return f, err
		}
		defer copied.drop() // the window keeps the memory
		part = copied.Slice()
	}
	l, err := c.largeState(asked)
	if err != nil {
		return f, err
	}
	if err := c.takePlace(asked, l); err != nil {
		return f, err
	}
	if err = c.creditFor(asked, verbs.WRSend, w.mode); err != nil {
		l.putPlace()
		return f, err
	}
	if f, err = c.offer(asked, l, part, s, w); err != nil {
		c.creditBack(verbs.WRSend)
	}
	return f, err
}

// takePlace waits for a place, until asked ends or the connection ends.
func (c *Conn) takePlace(asked reactor.DoneContext, l *largeSends) error {
	select {
	case <-l.places:
		return nil
	default:
	}
	c.sh.r.Wake() // earlier messages may be unposted
	select {
	case <-l.places:
		return nil
	case <-c.ended:
		return c.Err()
	case <-asked:
		return fmt.Errorf("waiting for the peer to fetch earlier messages: %w", asked.Err())
	}
}

// putPlace gives a place back. There is room for it. The place of a message in l.out is given back by who removes the
// message; the end of the connection gives none back.
func (l *largeSends) putPlace() { l.places <- struct{}{} }

// gather returns a buffer with a copy of locals, which have total bytes. It waits for memory until asked ends.
func (rt *Runtime) gather(asked reactor.DoneContext, locals []Slice, total int) (Buffer, error) {
	for i := range locals {
		if err := locals[i].of(rt.mem); err != nil {
			return Buffer{}, err
		}
		if locals[i].deviceLen > 0 {
			return Buffer{}, fmt.Errorf("%w: a message of %d bytes, larger than the peer's receives, from memory of another device", ErrTooLarge, total)
		}
	}
	buf, err := rt.mem.allocUntil(asked, total)
	if err != nil {
		return Buffer{}, err
	}
	at := buf.Bytes()
	for i := range locals {
		if err := locals[i].begin(); err != nil {
			buf.drop()
			return Buffer{}, err
		}
		at = at[copy(at, locals[i].b):]
		locals[i].lease.End()
	}
	return buf, nil
}

// largeState returns c.large, which it makes for the first large message. It waits for memory until asked ends.
func (c *Conn) largeState(asked reactor.DoneContext) (*largeSends, error) {
	if l := c.large.Load(); l != nil {
		return l, nil
	}
	if err := c.rt.enter(); err != nil {
		return nil, err
	}
	defer c.rt.leave()
	n, l := maxLarge, new(largeSends)
	if c.pool != nil {
		var err error
		if n, err = c.pool.reserveAnswers(asked, maxLarge); err != nil {
			return nil, err
		}
		l.reserved = n
	}
	l.places = make(chan struct{}, n)
	for range n {
		l.places <- struct{}{}
	}
	switch first := c.large.CompareAndSwap(nil, l); {
	case first: // messages of the peer may wait for it (pump)
		if c.pool != nil {
			c.pool.unclaim()
		}
		c.sh.r.Defer(func() {
			if c.fetches != nil {
				c.pump()
			}
		})
	case c.pool != nil: // another goroutine was first, or the connection is gone
		c.pool.free.Add(int64(n))
	}
	return c.large.Load(), nil
}

// endReserved returns the number of receives that are reserved for answers, and lets no more be reserved.
func (c *Conn) endReserved() int {
	if c.large.CompareAndSwap(nil, new(largeSends)) {
		c.pool.unclaim()
	}
	return c.large.Load().reserved
}

// sendsLarge reports whether the connection has sent a large message.
func (c *Conn) sendsLarge() bool {
	l := c.large.Load()
	return l != nil && l.places != nil
}

// offer binds a window to part and submits the Large frame. The caller has a place, which becomes the message's or is
// given back, and a credit.
func (c *Conn) offer(asked reactor.DoneContext, l *largeSends, part Slice, s reactor.Send, to submitOpts) (f Future, err error) {
	w, err := l.window(c)
	if err != nil {
		l.putPlace()
		return f, err
	}
	op := &largeSend{c: c, w: w, n: part.Len(), sink: to.sink, tag: to.tag}
	op.left.Store(3)
	at, _, err := w.bindPart(asked, part, verbs.AccessRemoteRead, 0, submitOpts{mode: to.mode, sink: (*largeBind)(op)})
	if err != nil {
		l.spareWindow(w)
		l.putPlace()
		return f, err
	}
	if op.sink == nil {
		op.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	}
	l.begin(op, at.RKey)
	var head [frameSize + proto.SourceSize]byte
	frame := c.frameOf(proto.Large, proto.SourceSize, &to)
	frame.Encode((*[frameSize]byte)(head[:]))
	proto.Source{Addr: at.Addr, Length: uint32(op.n), Key: at.RKey}.Encode((*[proto.SourceSize]byte)(head[frameSize:]))
	_, err = c.submit(asked, &s, reactor.Payload{Header: head[:]}, submitOpts{mode: to.mode, sink: (*largeFrame)(op), filled: to.filled})
	if err != nil {
		c.unframe(frame)
		l.drop(op)
		if op.sink == nil {
			op.promise.Settle(Result{}, err)
			f.Discard()
		}
		return Future{}, err
	}
	if op.left.Add(-1) == 0 {
		c.sh.r.Defer(op.deliver)
	}
	return f, nil
}

// largeFrame is the sink of the Large frame of a message, and largeBind that of its binding.
type (
	largeFrame largeSend
	largeBind  largeSend
)

// Complete implements reactor.Sink.
func (f *largeFrame) Complete(_ SinkContext, _ Result, err error) {
	if err != nil {
		(*largeSend)(f).refused(err)
	}
}

// Complete implements reactor.Sink. The window has its new state.
func (b *largeBind) Complete(_ SinkContext, _ Result, err error) {
	if err != nil {
		(*largeSend)(b).refused(err)
	}
	(*largeSend)(b).step()
}

// refused handles the error of a request of the message. Unlike other messages, this one does not end with
// its requests.
func (op *largeSend) refused(err error) {
	c := op.c
	if c.state == connDraining { // Close waits for the answer, which will not come
		c.sh.r.Defer(func() { c.fail(err) })
		return
	}
	c.failRefused(err)
	// A goroutine that was preempted after a look at the queue may have submitted the frame after endLarge.
	if c.drained {
		if was, _ := c.large.Load().end(op); was {
			op.finish(err)
		}
	}
}

// window returns a free window.
func (l *largeSends) window(c *Conn) (*Window, error) {
	l.mu.Lock()
	if n := len(l.spare); n > 0 {
		w := l.spare[n-1]
		l.spare = l.spare[:n-1]
		l.mu.Unlock()
		return w, nil
	}
	l.mu.Unlock()
	return c.NewWindow()
}

func (l *largeSends) spareWindow(w *Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = append(l.spare, w)
}

// begin adds op, whose window has the key, to the messages that the peer has not fetched.
func (l *largeSends) begin(op *largeSend, key uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op.key = key
	l.out = append(l.out, op)
}

// drop removes op, whose binding was submitted and whose frame was not. Its window is closed when the binding has
// completed.
func (l *largeSends) drop(op *largeSend) {
	left := int32(1)
	was, idle := l.end(op)
	if was { // otherwise an answer to this message that was not sent, or the end of the connection, has ended op
		left++
		l.putPlace()
	}
	if op.unsent = true; op.left.Add(-left) == 0 {
		op.c.sh.r.Defer(op.deliver)
	}
	if idle != nil {
		op.c.sh.r.Defer(idle)
	}
}

// end removes op, and reports whether it was there. If none is left, end returns the function of whenSent, which
// may be nil.
func (l *largeSends) end(op *largeSend) (was bool, idle func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.out, op); i >= 0 {
		l.out, was = slices.Delete(l.out, i, i+1), true
	}
	if len(l.out) == 0 {
		idle, l.idle = l.idle, nil
	}
	return was, idle
}

// byKey returns the message with the key, or nil.
func (l *largeSends) byKey(key uint32) *largeSend {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range l.out {
		if op.key == key {
			return op
		}
	}
	return nil
}

// answered handles a Fetched frame, which came with the result r: the peer's device has invalidated the key
// of the message. Holder only.
func (c *Conn) answered(r *Result) error {
	l := c.large.Load()
	var op *largeSend
	var was bool
	var idle func()
	if l != nil && r.Flags&verbs.WCWithInv != 0 {
		if op = l.byKey(r.Imm); op != nil {
			was, idle = l.end(op) // not there if its sender has dropped it meanwhile
		}
	}
	if !was {
		return fmt.Errorf("%w: it has fetched a message that was not sent, or without the message's key", ErrPeerProtocol)
	}
	op.w.keyInvalidated(op.key)
	op.finish(nil)
	l.putPlace()
	if idle != nil {
		idle()
	}
	return nil
}

// endLarge ends the messages that the peer has not fetched, and closes their windows. The connection has no
// outstanding requests any more. Holder only.
func (c *Conn) endLarge() {
	l := c.large.Load()
	if l == nil {
		return
	}
	l.mu.Lock()
	out := l.out
	l.out = nil
	l.mu.Unlock()
	for _, op := range out {
		c.closeLost(op.w)
		op.finish(c.endCause())
	}
}

// closeLost closes the window of a message that the peer does not fetch. Holder only.
func (c *Conn) closeLost(w *Window) {
	// If this fails, Conn.destroy tries again and reports the error.
	_ = w.close(true)
}

// whenSent calls fn when no send is outstanding, and the peer has fetched all large messages. Holder only.
func (c *Conn) whenSent(fn func()) {
	c.q.SendsIdle(func() {
		if l := c.large.Load(); l == nil || !l.waits(func() { c.whenSent(fn) }) {
			fn()
		}
	})
}

// waits reports whether there are messages that the peer has not fetched. If so, idle is called when there are
// none.
func (l *largeSends) waits(idle func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) == 0 {
		return false
	}
	l.idle = idle
	return true
}

// finish ends the message with err. Holder only.
func (op *largeSend) finish(err error) {
	op.err = err
	op.step()
}

// step ends one of the parts that left counts. Holder only.
func (op *largeSend) step() {
	if op.left.Add(-1) == 0 {
		op.deliver()
	}
}

// deliver delivers the result. Holder only.
func (op *largeSend) deliver() {
	if op.unsent {
		op.c.closeLost(op.w)
		return
	}
	if op.err == nil {
		op.c.large.Load().spareWindow(op.w)
	}
	if op.sink != nil {
		op.c.q.Notify(op)
		return
	}
	op.promise.Settle(op.result(), op.err)
}

func (op *largeSend) result() Result {
	if op.err != nil {
		return Result{Tag: op.tag}
	}
	return Result{Tag: op.tag, Bytes: uint32(op.n), Opcode: verbs.WCSend, Kind: reactor.KindSend}
}

// Complete implements reactor.Sink.
func (op *largeSend) Complete(t SinkContext, _ Result, _ error) {
	op.sink.Complete(t, op.result(), op.err)
}
