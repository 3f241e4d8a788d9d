package runtime

import (
	"context"
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
	spare []*Window // windows of earlier messages, oldest first
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
	// left is 2 at the beginning. The goroutine that sends subtracts 1 when the frame was submitted, and the
	// holder when the message has ended. The last delivers the result. So left publishes err, and a message
	// that was not submitted has no result.
	left atomic.Int32
	err  error
}

// sendLarge sends locals, which have total bytes, as one large message. s is a SEND of any kind. The window
// keeps the memory until the peer has fetched the message, or the connection has no outstanding requests any
// more.
func (c *Conn) sendLarge(asked reactor.DoneContext, locals []Slice, total int, s reactor.Send, w submitOpts) (f Future, err error) {
	if w.mode == reactor.NonBlock {
		return f, ErrPieces
	}
	part := locals[0]
	if len(locals) > 1 || !part.bindable() {
		copied, err := c.rt.gather(locals, total)
		if err != nil {
			return f, err
		}
		defer copied.drop() // the window keeps the memory
		part = copied.Slice()
	}
	l, err := c.largeSending()
	if err != nil {
		return f, err
	}
	select {
	case <-l.places:
	case <-c.ended:
		return f, c.Err()
	case <-asked:
		return f, fmt.Errorf("waiting for the peer to fetch earlier messages: %w", asked.Err())
	}
	if err = c.creditFor(asked, verbs.WRSend, w.mode); err == nil {
		if f, err = c.offer(asked, l, part, s, w); err == nil {
			return f, nil
		}
		c.creditBack(verbs.WRSend)
	}
	l.places <- struct{}{}
	return f, err
}

// gather returns a buffer with a copy of locals, which have total bytes.
func (rt *Runtime) gather(locals []Slice, total int) (Buffer, error) {
	for i := range locals {
		if err := locals[i].of(rt.mem); err != nil {
			return Buffer{}, err
		}
		if locals[i].deviceLen > 0 {
			return Buffer{}, fmt.Errorf("%w: a message of %d bytes, larger than the peer's receives, from memory of another device", ErrTooLarge, total)
		}
	}
	buf, err := rt.mem.Alloc(total)
	if err != nil {
		return Buffer{}, err
	}
	at := buf.Bytes()
	for i := range locals {
		b := locals[i].Bytes()
		if len(b) != locals[i].Len() {
			buf.drop()
			return Buffer{}, ErrReleased
		}
		at = at[copy(at, b):]
	}
	return buf, nil
}

// largeSending returns c.large, which it makes for the first large message.
func (c *Conn) largeSending() (*largeSends, error) {
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
		if n, err = c.pool.reserveUpTo(maxLarge); err != nil {
			return nil, err
		}
		l.reserved = n
	}
	l.places = make(chan struct{}, n)
	for range n {
		l.places <- struct{}{}
	}
	if !c.large.CompareAndSwap(nil, l) && c.pool != nil { // another goroutine was first, or the connection is gone
		c.pool.free.Add(int64(n))
	}
	return c.large.Load(), nil
}

// endReserved returns the number of receives that are reserved for answers, and lets no more be reserved.
func (c *Conn) endReserved() int {
	c.large.CompareAndSwap(nil, new(largeSends))
	return c.large.Load().reserved
}

// reserveUpTo reserves 1 to n receives, and makes them if they are not there. It may block.
func (p *recvPool) reserveUpTo(n int) (got int, err error) {
	for got < n && err == nil {
		if p.reserve(1) {
			got++
			continue
		}
		var made int
		if made, err = p.provision(n - got); made == 0 && err == nil {
			err = fmt.Errorf("%w: no receive is free for the answers to large messages", ErrTooMany)
		}
	}
	if got > 0 {
		return got, nil
	}
	return 0, err
}

// offer binds a window to part and submits the Large frame. The caller has a place and a credit.
func (c *Conn) offer(asked reactor.DoneContext, l *largeSends, part Slice, s reactor.Send, to submitOpts) (f Future, err error) {
	w, err := l.window(c)
	if err != nil {
		return f, err
	}
	at, _, err := w.bindPart(asked, part, verbs.AccessRemoteRead, 0, submitOpts{mode: to.mode, sink: (*unheard)(c)})
	if err != nil {
		l.spareWindow(w)
		return f, err
	}
	op := &largeSend{c: c, w: w, key: at.RKey, n: part.Len(), sink: to.sink, tag: to.tag}
	if op.left.Store(2); op.sink == nil {
		op.promise, f = c.sh.r.Futures().New(c.sh.r.Driver())
	}
	l.begin(op)
	var head [frameSize + proto.SourceSize]byte
	frame := c.frame(proto.Large, proto.SourceSize)
	frame.Encode((*[frameSize]byte)(head[:]))
	proto.Source{Addr: at.Addr, Length: uint32(op.n), Key: at.RKey}.Encode((*[proto.SourceSize]byte)(head[frameSize:]))
	// The wait for room ignores asked: the binding is submitted, and only the answer to the message ends it.
	_, err = c.submit(context.Background(), &s, reactor.Payload{Header: head[:]}, submitOpts{mode: to.mode, sink: (*unheard)(c), filled: to.filled})
	if err != nil { // the connection has ended, so closeWindows ends the binding
		c.unframe(frame)
		if idle := l.end(op); idle != nil {
			c.sh.r.Defer(idle)
		}
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

// window returns a free window.
func (l *largeSends) window(c *Conn) (*Window, error) {
	l.mu.Lock()
	if len(l.spare) > 0 && l.spare[0].isFree() { // a window whose binding has not completed is not
		w := l.spare[0]
		l.spare = slices.Delete(l.spare, 0, 1)
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

// begin adds op to the messages that the peer has not fetched.
func (l *largeSends) begin(op *largeSend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(l.out, op)
}

// end removes op. If it was the last, end returns the function of whenSent, which may be nil.
func (l *largeSends) end(op *largeSend) (idle func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.out, op); i >= 0 {
		l.out = slices.Delete(l.out, i, i+1)
	}
	if len(l.out) == 0 {
		idle, l.idle = l.idle, nil
	}
	return idle
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
	if l != nil && r.Flags&verbs.WCWithInv != 0 {
		op = l.byKey(r.Imm)
	}
	if op == nil {
		return fmt.Errorf("%w: it has fetched a message that was not sent, or without the message's key", ErrPeerProtocol)
	}
	op.w.keyInvalidated(op.key)
	l.spareWindow(op.w)
	idle := l.end(op)
	op.finish(nil)
	l.places <- struct{}{}
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
		c.windowMu.Lock()
		// If this fails, Conn.destroy tries again and reports the error.
		_ = op.w.close(true)
		c.windowMu.Unlock()
		op.finish(c.endCause())
	}
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
	if op.left.Add(-1) == 0 {
		op.deliver()
	}
}

// deliver delivers the result. Holder only.
func (op *largeSend) deliver() {
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
