package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// SharedRecv is a shared receive queue of raw connections (Options.Shared). A message on any of the
// connections takes the next receive. If no receive is posted, the peer's device gets an RNR NAK
// and sends the message again, as many times as its RNR retry count permits (by default without
// limit for a peer of this package). A SharedRecv saves memory: it needs only as many receives as
// all connections together use at one time. Without a SharedRecv each connection needs as many
// receives as it may ever use.
//
// All connections of a SharedRecv run on one reactor. Methods may be called from any goroutine. The
// caller closes the connections of a SharedRecv first, and then the SharedRecv.
//
// When a connection ends, the device may already have taken receives for the connection's next
// messages. These receives complete with an error. If the device drops their completions when the
// queue pair is destroyed, they complete when the SharedRecv is closed.
//
// Implements: struct ibv_srq.
type SharedRecv struct {
	rt *Runtime
	sh *shard
	q  *reactor.SharedRecv

	// Holder only:
	conns map[uint32]*Conn // by queue pair number
	gone  bool             // the SRQ is closed
}

// Arrival is the result of a shared receive. Conn is the connection whose queue pair took the
// receive, and may have ended. Conn is nil if no queue pair took the receive, or if the queue pair
// has been destroyed.
type Arrival struct {
	Result
	Conn *Conn
}

// NewSharedRecv creates a SharedRecv for at most depth receives of at most maxSGE slices each. A
// depth or maxSGE of 0 selects the default. NewSharedRecv waits for a reactor, and on a real device
// for the kernel.
//
// Errors: ErrClosed; ErrConfig; ErrTooMany; ErrNotSupported.
//
// Implements: ibv_create_srq.
func (rt *Runtime) NewSharedRecv(depth, maxSGE int) (*SharedRecv, error) {
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	s, err := rt.shard().prepareShared(depth, maxSGE)
	if err != nil {
		return nil, err
	}
	if derr := s.sh.r.Do(context.Background(), func() { err = s.open() }); derr != nil || err != nil {
		return nil, errors.Join(derr, err, s.q.Discard())
	}
	return s, nil
}

// prepareShared makes a SharedRecv of the shard. The caller calls open(), or discards s.q. It may enter
// the kernel. Any goroutine may call it.
func (s *shard) prepareShared(depth, maxSGE int) (sr *SharedRecv, err error) {
	sr = &SharedRecv{rt: s.rt, sh: s, conns: map[uint32]*Conn{}}
	if sr.q, err = s.r.PrepareShared(s.rt.pd, depth, maxSGE); err != nil {
		return nil, err
	}
	sr.q.OnFail(func(cause error) {
		if errors.Is(cause, verbs.ErrDeviceRemoved) { // without connections, perhaps nothing else reports the removal
			s.rt.deviceGone()
		}
	})
	return sr, nil
}

// open() creates the SRQ. Holder only.
func (s *SharedRecv) open() error {
	if err := s.q.Admit(); err != nil {
		return err
	}
	// Do not create the SRQ in the reactor's thread domain, where the SRQ would have no lock. The
	// lock is needed because a queue pair is destroyed without the turn. The destruction may give
	// receives back to the SRQ while the holder posts or polls, and libmlx5 without the lock would
	// abort the process.
	srq, err := s.rt.pd.CreateSRQ(s.q.Attr())
	if err != nil {
		s.q.Withdraw()
		return err
	}
	s.q.Bind(srq)
	s.rt.mu.Lock()
	defer s.rt.mu.Unlock()
	s.rt.shared[s] = struct{}{}
	return nil
}

// PostRecv posts a receive into the memory of locals. It does not wait: if as many receives are
// posted as NewSharedRecv permits, it returns ErrRecvFull. The device owns the memory until the
// future is settled. Receives may complete in any order. When the SharedRecv is closed, its posted
// receives fail with ErrClosed. When the device is removed, they fail with ErrDeviceRemoved.
//
// Implements: ibv_post_srq_recv.
func (s *SharedRecv) PostRecv(locals ...Slice) (f futures.Future[Arrival], err error) {
	t := sharedRecvOps.Get().(*sharedRecvOp)
	t.promise, f = s.rt.arrivals.New(s.sh.r.Driver())
	promise := t.promise
	if err = s.postRecv(t, 0, locals); err != nil {
		promise.Settle(Arrival{}, err)
		f.Discard()
		return futures.Future[Arrival]{}, err
	}
	return f, nil
}

// ArrivalSink receives the results of shared receives. Arrived is called where a [Sink] is, and must not
// block.
type ArrivalSink interface{ Arrived(a Arrival, err error) }

// PostRecvTo is PostRecv with a sink in place of the future. Arrival.Tag is the argument tag.
func (s *SharedRecv) PostRecvTo(sink ArrivalSink, tag uint64, locals ...Slice) error {
	if sink == nil {
		return fmt.Errorf("%w: a receive without a sink", ErrInvalid)
	}
	t := sharedRecvOps.Get().(*sharedRecvOp)
	t.sink = sink
	return s.postRecv(t, tag, locals)
}

// Loop returns the reactor of the shared receives and of the connections that use them.
func (s *SharedRecv) Loop() Loop { return Loop{s.sh.r} }

// postRecv posts the receive t. If it fails, it frees t.
func (s *SharedRecv) postRecv(t *sharedRecvOp, tag uint64, locals []Slice) (err error) {
	defer func() {
		if err != nil {
			t.free()
		}
	}()
	for _, l := range locals {
		if !l.writable() {
			return fmt.Errorf("%w: the memory of a receive is not registered for LOCAL_WRITE", ErrPermission)
		}
	}
	var space [stackSGEs]verbs.SGE
	r := reactor.Recv{Sink: t, Tag: tag}
	var sges []verbs.SGE
	if sges, r.Lease, err = leaseAll(s.rt.mem, space[:0], locals); err != nil {
		return err
	}
	t.s = s
	if err = s.q.PostRecv(&r, sges, reactor.Block); err != nil && r.Lease != nil {
		r.Lease.End()
	}
	return err
}

// sharedRecvOp is the sink of one shared receive. It settles the receive's future, or calls the
// program's sink.
type sharedRecvOp struct {
	s       *SharedRecv
	promise futures.Promise[Arrival]
	sink    ArrivalSink // if nil, the promise gets the result
}

var sharedRecvOps = sync.Pool{New: func() any { return new(sharedRecvOp) }}

// free() returns t to the pool.
func (t *sharedRecvOp) free() {
	*t = sharedRecvOp{}
	sharedRecvOps.Put(t)
}

// Complete implements reactor.Sink.
func (t *sharedRecvOp) Complete(_ SinkContext, r Result, err error) {
	s, promise, sink := t.s, t.promise, t.sink
	t.free()
	a := Arrival{Result: r, Conn: s.conns[r.QPNum]}
	if a.Conn != nil && err == nil {
		a.Conn.q.NotePeerReceive()
		if r.Flags&verbs.WCWithInv != 0 {
			a.Conn.invalidated(r.Imm)
		}
	}
	if sink != nil {
		sink.Arrived(a, err)
		return
	}
	promise.Settle(a, err)
}

// Close closes the SharedRecv. Its posted receives complete with ErrClosed. While connections use
// the SharedRecv, Close returns ErrBusy. Close is idempotent, and waits for the reactor of the
// SharedRecv.
//
// Implements: ibv_destroy_srq.
func (s *SharedRecv) Close() error { return s.close(context.Background()) }

// close() is like Close, but stops waiting when ctx ends.
func (s *SharedRecv) close(ctx context.Context) error {
	var err error
	switch derr := s.sh.r.Do(ctx, func() { err = s.end() }); {
	case errors.Is(derr, reactor.ErrClosed):
		return nil // the SharedRecv was closed with the runtime
	case derr != nil:
		return fmt.Errorf("closing shared receives: %w: %w", ErrReactorBusy, derr)
	}
	return err
}

// end() closes the SRQ and releases s.q. If connections use s, it returns ErrBusy. Holder only.
func (s *SharedRecv) end() error {
	if s.gone {
		return nil
	}
	if n := len(s.conns); n > 0 {
		return fmt.Errorf("%w: %d connections use the shared receives", verbs.ErrBusy, n)
	}
	if err := s.q.SRQ().Close(); err != nil {
		return err
	}
	return s.forget()
}

// forget() releases s.q after the SRQ was closed. Holder only.
func (s *SharedRecv) forget() error {
	s.gone = true
	s.rt.mu.Lock()
	delete(s.rt.shared, s)
	s.rt.mu.Unlock()
	return s.q.Release(s.endCause())
}

// join() registers the connection c, which has just got its queue pair. If s is nil, join() does
// nothing. Holder only.
func (s *SharedRecv) join(c *Conn) {
	if s != nil {
		s.conns[c.q.QP().Num()] = c
	}
}

// part() undoes join(). It is called before the queue pair of c is destroyed. Holder only.
func (s *SharedRecv) part(c *Conn) {
	if s != nil && c.q.QP() != nil {
		delete(s.conns, c.q.QP().Num())
	}
}

// usable() returns an error if connections of rt may not use s as Options.Shared. If s is nil, it
// returns nil.
func (s *SharedRecv) usable(rt *Runtime) error {
	if s == nil {
		return nil
	}
	if s.rt != rt {
		return fmt.Errorf("%w: Options.Shared is of another runtime", ErrConfig)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if _, open := rt.shared[s]; !open {
		return fmt.Errorf("%w: Options.Shared: %w", ErrConfig, ErrClosed)
	}
	return nil
}

// queue returns s.q, or nil if s is nil.
func (s *SharedRecv) queue() *reactor.SharedRecv {
	if s == nil {
		return nil
	}
	return s.q
}

// afterLastWQE calls fn when the connection's queue pair, which is in ERR, uses no shared receive
// any more: the device has reported LAST_WQE_REACHED, and the results of the receives have been
// delivered. Without shared receives afterLastWQE calls fn immediately. Not every device reports
// LAST_WQE_REACHED, so the caller must not wait for fn without a time limit. Holder only.
//
// Implements: IBTA volume 1, 10.2.9.5 (destroying a queue pair with an SRQ).
func (c *Conn) afterLastWQE(fn func()) {
	if c.opts.Shared == nil || c.lastWQESeen {
		fn()
		return
	}
	c.lastWQEFns = append(c.lastWQEFns, fn)
}

// onLastWQE handles the event LAST_WQE_REACHED. On an idle connection this event may be the only
// report that the queue pair was moved to ERR. Holder only.
func (c *Conn) onLastWQE() {
	c.lastWQESeen = true
	c.sh.r.Drain()
	if c.state == connOpen {
		c.flushed()
	}
	fns := c.lastWQEFns
	c.lastWQEFns = nil
	for _, fn := range fns {
		fn()
	}
}
