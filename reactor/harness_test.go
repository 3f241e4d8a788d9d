package reactor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// end is one side of a connected pair: a device, a reactor, a queue and registered memory.
type end struct {
	ctx   verbs.Context
	pd    verbs.PD
	r     *reactor.Reactor
	q     *reactor.Queue
	arena *mem.Arena
	mr    verbs.MR
}

const (
	endMemory = 1 << 20
	endAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
)

// try() reports an error without ending the goroutine. Sinks, handlers and callbacks call try(),
// because they do not run on the test's goroutine.
func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wrap puts a layer around a device. The reactor uses the device that wrap returns.
type wrap func(verbs.Context) verbs.Context

func newEnd(t testing.TB, ctx verbs.Context, cfg reactor.Config, qc reactor.QueueConfig, w wrap) *end {
	t.Helper()
	e := &end{ctx: ctx}
	e.pd = must.Get(e.ctx.AllocPD())(t)
	cfg.Context = e.ctx
	if w != nil {
		cfg.Context = w(e.ctx)
	}
	e.r = must.Get(reactor.New(cfg))(t)
	e.arena = must.Get(mem.Map(endMemory, mem.Options{}))(t)
	e.mr = must.Get(e.pd.RegMR(e.arena.Addr(), endMemory, e.arena.Addr(), endAccess))(t)
	e.q = e.queue(t, qc)
	return e
}

// another() returns an end that has a new queue and shares everything else with e.
func (e *end) another(t testing.TB, qc reactor.QueueConfig) *end {
	t.Helper()
	more := *e
	more.q = e.queue(t, qc)
	return &more
}

// queue() returns a new queue. Its queue pair is in INIT.
func (e *end) queue(t testing.TB, qc reactor.QueueConfig) *reactor.Queue {
	t.Helper()
	qc.PD = e.pd
	q := must.Get(e.r.Prepare(qc))(t)
	e.do(t, func() {
		must.Do(t, q.Admit())
		init := q.InitAttr()
		qp := must.Get(e.pd.CreateQP(init))(t)
		q.Bind(qp, init.Cap)
		must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: endAccess},
			verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	})
	return q
}

func (e *end) do(t testing.TB, fn func()) {
	t.Helper()
	doIn(t, e.r, fn)
}

// doIn calls fn on the test's goroutine, while another goroutine holds the turn in Reactor.Do. So fn
// may do what only the holder may do, and may call Fatal. (If fn ran on the reactor's goroutine,
// Fatal would end the loop.)
func doIn(t testing.TB, r *reactor.Reactor, fn func()) {
	t.Helper()
	enter, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx := bounded(t)
	go func() { done <- r.Do(ctx, func() { close(enter); <-leave }) }()
	select {
	case <-enter:
	case err := <-done:
		t.Fatalf("Do returned %v before its function ran", err)
	}
	defer func() { close(leave); <-done }()
	fn()
}

// bytes() returns n bytes of the end's memory, and the scatter-gather element for these bytes.
func (e *end) bytes(off, n int) ([]byte, verbs.SGE) {
	return e.arena.Bytes()[off : off+n], verbs.SGE{Addr: e.arena.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *end) remote(off int) (uint64, uint32) { return e.arena.Addr() + uint64(off), e.mr.RKey() }

// ackTimeout is the timeout code for 4.096 µs × 2^18, about 1 s. With 7 retries, a device gives up
// only if its peer does not answer for more than 8 s. So no test fails when the system suspends the
// process for a second.
const ackTimeout = 18

func (e *end) ready(t testing.TB, peer *end) {
	t.Helper()
	e.do(t, func() {
		must.Do(t, e.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSRTR, PathMTU: mtuOf(t, e.ctx, peer.ctx), DestQPN: peer.q.QP().Num(), RQPSN: 7,
			MaxDestRdAtomic: 16, MinRNRTimer: 12,
			AH: verbs.AHAttr{DGID: gidOf(t, peer.ctx).GID, SGIDIndex: uint8(gidOf(t, e.ctx).Index), HopLimit: 64, Port: 1}},
			verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer))
		must.Do(t, e.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSRTS, SQPSN: 7, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 16},
			verbs.QPMState|verbs.QPMTimeout|verbs.QPMRetryCnt|verbs.QPMRNRRetry|verbs.QPMSQPSN|verbs.QPMMaxQPRdAtomic))
	})
}

// close() flushes and releases the queue, closes the end, and checks that no verbs object is left.
func (e *end) close(t testing.TB) {
	t.Helper()
	e.closeQueue(t)
	e.closeRest(t)
}

// closeQueue flushes and releases the end's queue.
func (e *end) closeQueue(t testing.TB) {
	t.Helper()
	gone := make(chan struct{})
	e.do(t, func() {
		must.Do(t, e.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
		e.q.Idle(func() { close(gone) })
	})
	comes(t, "the flush of the queue", gone)
	e.do(t, func() {
		must.Do(t, e.q.QP().Close())
		must.Do(t, e.q.Release(reactor.ErrClosed))
	})
}

// closeRest closes an end whose queues have been released. It checks that no verbs object of the
// device is left.
func (e *end) closeRest(t testing.TB) {
	t.Helper()
	must.Do(t, e.r.Close(bounded(t)))
	must.Do(t, e.mr.Close())
	must.Do(t, e.arena.Unmap())
	must.Do(t, e.pd.Close())
	try(t, leftObjects(e.ctx))
	must.Do(t, e.ctx.Close())
}

func pair(t testing.TB, cfg reactor.Config, qc reactor.QueueConfig) (a, b *end) {
	return pairOf(t, cfg, qc, nil)
}

func pairOf(t testing.TB, cfg reactor.Config, qc reactor.QueueConfig, w wrap) (a, b *end) {
	t.Helper()
	return home().pair(t, cfg, qc, w)
}

func (d bed) pair(t testing.TB, cfg reactor.Config, qc reactor.QueueConfig, w wrap) (a, b *end) {
	t.Helper()
	a = newEnd(t, d.open(t, 0), cfg, qc, w)
	b = newEnd(t, d.open(t, 1), cfg, qc, nil)
	a.ready(t, b)
	b.ready(t, a)
	return a, b
}

// inbox is a sink that collects the completions of successful receives.
type inbox chan reactor.Completion

func (i inbox) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if err == nil {
		i <- c
	}
}

// patience limits how long a test waits for an expected event. Only a failing test
// waits until the limit. The limit is longer on a device, because the device may belong to an
// emulated, busy machine.
var patience = func() time.Duration {
	if onDevice() {
		return time.Minute
	}
	return 10 * time.Second
}()

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// comes waits until ch is closed or delivers a value, and returns the value. If neither happens within
// patience, comes ends the test, and the failure text names the event.
func comes[T any](t testing.TB, event string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited %v in vain for %s", patience, event)
	}
	return v
}

// called is a function that serves as a sink.
type called func(reactor.Completion, error)

func (fn called) Complete(_ reactor.SinkContext, c reactor.Completion, err error) { fn(c, err) }

// hooked is a layer between a reactor and its device. While a hook is set, Execute calls
// the hook in place of the device. The test sets the hook; the holder of the turn reads it.
type hooked struct {
	verbs.Context
	hook atomic.Pointer[turnHook]
}

type turnHook func(inner verbs.Context, t *verbs.IOBatch) error

func (h *hooked) set(fn turnHook) { h.hook.Store(&fn) }

func (h *hooked) Execute(t *verbs.IOBatch) error {
	if fn := h.hook.Load(); fn != nil {
		return (*fn)(h.Context, t)
	}
	return h.Context.Execute(t)
}

func hookedPair(t *testing.T, cfg reactor.Config, qc reactor.QueueConfig) (a, b *end, h *hooked) {
	a, b = pairOf(t, cfg, qc, func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
	return a, b, h
}

// stray() submits s as an 8-byte SEND and runs the pass that posts it. The peer must have posted no
// receive. So the SEND stays outstanding until the peer posts a receive or the queue pair ends.
func (e *end) stray(t testing.TB, s reactor.Send) reactor.Future {
	t.Helper()
	s.Opcode = verbs.WRSend
	_, sge := e.bytes(0, 8)
	f := must.Get(e.q.Submit(bounded(t), &s, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Block))(t)
	e.do(t, e.r.Flush)
	return f
}

// write() returns the request for an 8-byte WRITE to the memory of peer. It does not submit the
// request.
func (e *end) write(peer *end) (*reactor.Send, reactor.Payload) {
	addr, key := peer.remote(0)
	_, sge := e.bytes(0, 8)
	return &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}
}

// release() destroys the queue pair and releases the queue.
func (e *end) release(t testing.TB, cause error) {
	t.Helper()
	e.do(t, func() { e.releaseHeld(t, cause) })
}

// releaseHeld is release for a caller that holds the turn.
func (e *end) releaseHeld(t testing.TB, cause error) {
	t.Helper()
	try(t, e.q.QP().Close())
	try(t, e.q.Release(cause))
}

// lone is a reactor without queues, with its device and a protection domain.
type lone struct {
	ctx verbs.Context
	pd  verbs.PD
	r   *reactor.Reactor
}

func newLone(t testing.TB, cfg reactor.Config, w wrap) *lone {
	t.Helper()
	return newLoneOn(t, home().open(t, 0), cfg, w)
}

// newLoneOn is newLone on an open device.
func newLoneOn(t testing.TB, ctx verbs.Context, cfg reactor.Config, w wrap) *lone {
	t.Helper()
	l := &lone{ctx: ctx}
	l.pd = must.Get(l.ctx.AllocPD())(t)
	cfg.Context = l.ctx
	if w != nil {
		cfg.Context = w(l.ctx)
	}
	l.r = must.Get(reactor.New(cfg))(t)
	return l
}

func (l *lone) do(t testing.TB, fn func()) {
	t.Helper()
	doIn(t, l.r, fn)
}

func (l *lone) close(t testing.TB) {
	t.Helper()
	must.Do(t, l.r.Close(bounded(t)))
	must.Do(t, l.pd.Close())
	try(t, leftObjects(l.ctx))
	must.Do(t, l.ctx.Close())
}
