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

// SharedRecv is a queue of receives that raw connections share
// (Options.Shared): memory for what arrives in all, not for what might arrive at
// each. Whichever connection a message comes by takes the next receive; when none
// is posted its peer waits (RNR) until one is.
//
// Its connections live on one reactor. Methods may be called from any goroutine.
// The caller closes it, after its connections.
//
// A connection that ends gives the receives it had begun back through its
// failed completions; a device that drops those with the queue pair keeps them
// until Close.
//
// Implements: struct ibv_srq.
type SharedRecv struct {
	rt *Runtime
	sh *shard
	q  *reactor.SharedRecv

	// The holder's.
	conns map[uint32]*Conn // by queue pair number
	gone  bool
}

// Arrival is what a shared receive has taken: a Result and the connection it
// came by, which may have ended since; nil if it was not one of ours any more.
type Arrival struct {
	Result
	Conn *Conn
}

// NewSharedRecv makes a queue of depth receives of up to maxSGE pieces (0:
// defaults). It blocks on a reactor and enters the kernel on a real device.
//
// Errors: ErrClosed; ErrConfig; ErrTooMany; ErrNotSupported.
//
// Implements: ibv_create_srq.
func (rt *Runtime) NewSharedRecv(depth, maxSGE int) (*SharedRecv, error) {
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	s := &SharedRecv{rt: rt, sh: rt.shard(), conns: map[uint32]*Conn{}}
	var err error
	if s.q, err = s.sh.r.PrepareShared(rt.pd, depth, maxSGE); err != nil {
		return nil, err
	}
	s.q.OnFail(func(cause error) {
		if errors.Is(cause, verbs.ErrDeviceRemoved) { // no connection need be there to tell
			rt.deviceGone()
		}
	})
	if derr := s.sh.r.Do(context.Background(), func() { err = s.open() }); derr != nil || err != nil {
		return nil, errors.Join(derr, err, s.q.Discard())
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.shared[s] = struct{}{}
	return s, nil
}

// open makes the device's queue. Holder only.
func (s *SharedRecv) open() error {
	if err := s.q.Admit(); err != nil {
		return err
	}
	// Not in the reactor's thread domain: a queue without a lock must not be posted to
	// while another thread polls for a queue pair that takes from it, and libmlx5 ends
	// the process for that.
	srq, err := s.rt.pd.CreateSRQ(s.q.Attr())
	if err != nil {
		s.q.Withdraw()
		return err
	}
	s.q.Bind(srq)
	return nil
}

// PostRecv posts a receive. The future tells what it took, and by which
// connection. It does not wait: ErrRecvFull when all are posted. The memory
// is the device's until the future is settled; receives complete in any order.
// What is posted when the queue is closed fails with ErrClosed, or
// ErrDeviceRemoved.
//
// Implements: ibv_post_srq_recv.
func (s *SharedRecv) PostRecv(locals ...Slice) (f futures.Future[Arrival], err error) {
	for _, l := range locals {
		if !l.writable() {
			return f, fmt.Errorf("%w: the memory of a receive is not registered for LOCAL_WRITE", ErrPermission)
		}
	}
	var space [stackSGEs]verbs.SGE
	var r reactor.Recv
	var sges []verbs.SGE
	if sges, r.Lease, err = leaseAll(s.rt.mem, space[:0], locals); err != nil {
		return f, err
	}
	t := takings.Get().(*taking)
	promise, f := s.rt.arrivals.New(s.sh.r.Driver())
	t.s, t.promise = s, promise
	r.Sink = t
	if err = s.q.PostRecv(&r, sges); err != nil {
		if r.Lease != nil {
			r.Lease.End()
		}
		t.give()
		promise.Settle(Arrival{}, err)
		f.Discard()
		return futures.Future[Arrival]{}, err
	}
	return f, nil
}

// taking settles the future of a shared receive.
type taking struct {
	s       *SharedRecv
	promise futures.Promise[Arrival]
}

// takings are those that nobody has.
var takings = sync.Pool{New: func() any { return new(taking) }}

// give is its end.
func (t *taking) give() {
	*t = taking{}
	takings.Put(t)
}

// Complete implements reactor.Sink.
func (t *taking) Complete(_ SinkContext, r Result, err error) {
	s, promise := t.s, t.promise
	t.give()
	a := Arrival{Result: r, Conn: s.conns[r.QPNum]}
	if a.Conn != nil && err == nil {
		a.Conn.q.Heard()
		if r.Flags&verbs.WCWithInv != 0 {
			a.Conn.invalidated(r.Imm)
		}
	}
	promise.Settle(a, err)
}

// Close ends the queue; what is posted completes with ErrClosed.
// ErrBusy while connections use it. It is idempotent, and waits for its
// reactor.
//
// Implements: ibv_destroy_srq.
func (s *SharedRecv) Close() error { return s.close(context.Background()) }

// close is Close that waits at most until ctx ends.
func (s *SharedRecv) close(ctx context.Context) error {
	var err error
	switch derr := s.sh.r.Do(ctx, func() { err = s.end() }); {
	case errors.Is(derr, reactor.ErrClosed):
		return nil // with the runtime
	case derr != nil:
		return fmt.Errorf("closing shared receives: %w: %w", ErrReactorBusy, derr)
	}
	return err
}

// end closes. Holder only.
func (s *SharedRecv) end() error {
	if s.gone {
		return nil
	}
	if n := len(s.conns); n > 0 {
		return fmt.Errorf("%w: %d connections receive here", verbs.ErrBusy, n)
	}
	if err := s.q.SRQ().Close(); err != nil {
		return err
	}
	return s.forget()
}

// forget ends the queue when the device's is closed. Holder only.
func (s *SharedRecv) forget() error {
	s.gone = true
	s.rt.mu.Lock()
	delete(s.rt.shared, s)
	s.rt.mu.Unlock()
	return s.q.Release(s.endCause())
}

// join and part are called when a connection gets and loses its queue pair.
// Holder only; nothing for connections without shared receives.
func (s *SharedRecv) join(c *Conn) {
	if s != nil {
		s.conns[c.q.QP().Num()] = c
	}
}

func (s *SharedRecv) part(c *Conn) {
	if s != nil && c.q.QP() != nil {
		delete(s.conns, c.q.QP().Num())
	}
}

// usable tells whether connections of rt may receive here; nil is.
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

// queue is nil for nil.
func (s *SharedRecv) queue() *reactor.SharedRecv {
	if s == nil {
		return nil
	}
	return s.q
}

// whenTaken calls fn when the connection, whose queue pair is in ERR, has taken its
// last shared receive and its completion was handed out: at once without shared
// receives. Who calls bounds the wait, because not every device tells. Holder only.
//
// Implements: IBTA volume 1, 10.2.9.5 (destroying a queue pair with an SRQ).
func (c *Conn) whenTaken(fn func()) {
	if c.opts.Shared == nil || c.lastTaken {
		fn()
		return
	}
	c.onTaken = fn
}

// taken is called at LAST_WQE_REACHED. Holder only.
func (c *Conn) taken() {
	c.lastTaken = true
	c.sh.r.Drain()
	if fn := c.onTaken; fn != nil {
		c.onTaken = nil
		fn()
	}
}
