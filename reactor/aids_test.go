package reactor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// patience is how long a test waits for what must come: it bounds a failing
// test, and orders nothing. A device's machine may be emulated, and busy.
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

// comes waits for ch to be closed, or to give one value.
func comes[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: not after %v", what, patience)
	}
	return v
}

// called is a sink that is a function.
type called func(reactor.Completion, error)

func (fn called) Complete(_ reactor.Turn, c reactor.Completion, err error) { fn(c, err) }

// hooked stands between a reactor and its device; while a hook is set, turns
// are the hook's. The test sets it, the holder of the turn reads it.
type hooked struct {
	verbs.Context
	hook atomic.Pointer[turnHook]
}

type turnHook func(inner verbs.Context, t *verbs.Turn) error

func (h *hooked) set(fn turnHook) { h.hook.Store(&fn) }

func (h *hooked) Turn(t *verbs.Turn) error {
	if fn := h.hook.Load(); fn != nil {
		return (*fn)(h.Context, t)
	}
	return h.Context.Turn(t)
}

func hookedPair(t *testing.T, cfg reactor.Config, qc reactor.QueueConfig) (a, b *end, h *hooked) {
	a, b = pairOf(t, cfg, qc, func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
	return a, b, h
}

// stray is a send to a peer without a receive: it stays out until the peer has
// one, or the queue pair ends.
func (e *end) stray(t testing.TB, s reactor.Send) reactor.Future {
	t.Helper()
	s.Opcode = verbs.WRSend
	_, sge := e.bytes(0, 8)
	f, err := e.q.Submit(bounded(t), &s, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Wait)
	check(t, err)
	e.do(t, e.r.Flush)
	return f
}

// write is a WRITE of 8 bytes to peer.
func (e *end) write(peer *end) (*reactor.Send, reactor.Payload) {
	addr, key := peer.remote(0)
	_, sge := e.bytes(0, 8)
	return &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, reactor.Payload{SGEs: []verbs.SGE{sge}}
}

// release destroys the queue pair and releases the queue.
func (e *end) release(t testing.TB, cause error) {
	t.Helper()
	e.do(t, func() { e.releaseHeld(t, cause) })
}

func (e *end) releaseHeld(t testing.TB, cause error) {
	t.Helper()
	try(t, e.q.QP().Close())
	try(t, e.q.Release(cause))
}

// lone is a reactor with a protection domain and no queue.
type lone struct {
	ctx verbs.Context
	pd  verbs.PD
	r   *reactor.Reactor
}

func newLone(t testing.TB, cfg reactor.Config, w wrap) *lone {
	t.Helper()
	l := &lone{}
	l.ctx = home().open(t, 0)
	l.pd = must(l.ctx.AllocPD())(t)
	cfg.Context = l.ctx
	if w != nil {
		cfg.Context = w(l.ctx)
	}
	l.r = must(reactor.New(cfg))(t)
	return l
}

func (l *lone) do(t testing.TB, fn func()) {
	t.Helper()
	doIn(t, l.r, fn)
}

func (l *lone) close(t testing.TB) {
	t.Helper()
	check(t, l.r.Close(bounded(t)))
	check(t, l.pd.Close())
	try(t, leftObjects(l.ctx))
	check(t, l.ctx.Close())
}
