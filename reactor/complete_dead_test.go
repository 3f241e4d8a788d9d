package reactor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// onFail sets the OnFail function of e.q. This function sends its error to the returned channel.
func (e *end) onFail(t testing.TB) <-chan error {
	failed := make(chan error, 2)
	e.do(t, func() { e.q.OnFail(func(err error) { failed <- err }) })
	return failed
}

// Rule: if a poll of a completion queue has failed, Queue.Admit returns ErrOverrun. (The operations of
// a newly admitted queue would never end.)
func TestDeadCompletionQueueRefusesQueues(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	failed := a.onFail(t)
	fs := a.batchAfter(t, b, 1, func() { f.dead.Store(true) })
	if err := comes(t, "the failure", failed); !errors.Is(err, reactor.ErrOverrun) {
		t.Errorf("the queue failed with %v, want ErrOverrun", err)
	}
	q := must.Get(a.r.Prepare(reactor.QueueConfig{PD: a.pd}))(t)
	a.do(t, func() {
		if err := q.Admit(); !errors.Is(err, reactor.ErrOverrun) {
			t.Errorf("Admit returned %v, want ErrOverrun", err)
		}
	})
	must.Do(t, q.Discard())
	a.release(t, errOver)
	fs[0].Discard()
}

// Rule: if a poll returns completions together with an errno, the completions are delivered. They
// have left the completion queue, so no later poll would return them.
func TestCompletionsBesideAnErrnoAreDelivered(t *testing.T) {
	a, b, h := hookedPair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	failed := a.onFail(t)
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		err := inner.Execute(turn)
		for i := range turn.Polls {
			if turn.Polls[i].N > 0 {
				turn.Polls[i].Errno = syscall.EIO
			}
		}
		return err
	})
	s, p := a.write(b)
	f := must.Get(a.q.Submit(context.Background(), s, &p, reactor.Block))(t)
	if _, err := f.Await(bounded(t)); err != nil {
		t.Errorf("a WRITE whose completion was polled ended with %v, want success", err)
	}
	if err := comes(t, "the failure", failed); !errors.Is(err, reactor.ErrOverrun) || !errors.Is(err, syscall.EIO) {
		t.Errorf("the queue failed with %v, want ErrOverrun that wraps EIO", err)
	}
	a.release(t, errOver)
}

// Rule: if the device is removed, every queue fails with ErrDeviceRemoved, and the queue's OnFail
// function is called one time. Unposted requests end at once. Outstanding requests end when the
// queue is released.
func TestRemovedDeviceFailsTheQueue(t *testing.T) {
	for name, cfg := range map[string]reactor.Config{"driving": {}, "loop only": {NoCallerDriving: true}} {
		t.Run(name, func(t *testing.T) {
			a, b, h := hookedPair(t, cfg, reactor.QueueConfig{})
			defer b.close(t)
			defer a.closeRest(t)
			failed := a.onFail(t)
			out := a.stray(t, reactor.Send{})
			h.set(func(verbs.Context, *verbs.IOBatch) error { return verbs.ErrDeviceRemoved })
			s, p := a.write(b)
			// If the loop has seen the removal already, Submit returns the error. Otherwise the
			// device refuses the request, and the future returns the error.
			f, err := a.q.Submit(context.Background(), s, &p, reactor.Block)
			if err == nil {
				_, err = f.Await(bounded(t))
			}
			if !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("a WRITE to a removed device ended with %v, want ErrDeviceRemoved", err)
			}
			if err := comes(t, "the failure", failed); !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("the queue failed with %v, want ErrDeviceRemoved", err)
			}
			if _, err := a.q.Submit(context.Background(), s, &p, reactor.Block); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("Submit after the failure returned %v, want ErrQueueFailed that wraps ErrDeviceRemoved", err)
			}
			a.release(t, errOver)
			if _, err := out.Await(bounded(t)); !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("the outstanding SEND ended with %v, want ErrDeviceRemoved", err)
			}
			if n := len(failed); n != 0 {
				t.Errorf("the function given to OnFail was called %d times, want once", 1+n)
			}
		})
	}
}

// Rule: if arming a completion queue fails, the reactor's queues fail with that error. (An unarmed
// completion queue would never wake the loop.)
func TestFailedArmFailsTheQueue(t *testing.T) {
	a, b, h := hookedPair(t, reactor.Config{Spin: -1, NoCallerDriving: true}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	failed := a.onFail(t)
	posted := false // set when the device gets the SEND; if arming failed before that, Submit would fail
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		posted = posted || len(turn.Sends) > 0
		if !posted {
			return inner.Execute(turn)
		}
		arms := turn.Arms
		turn.Arms = nil
		err := inner.Execute(turn)
		turn.Arms = arms
		for i := range arms {
			arms[i].Errno = syscall.EIO
		}
		return err
	})
	out := a.stray(t, reactor.Send{})
	var op *verbs.OpError
	if err := comes(t, "the failure", failed); !errors.As(err, &op) || op.Op != "ibv_req_notify_cq" || !errors.Is(err, syscall.EIO) {
		t.Errorf("the queue failed with %v, want EIO of ibv_req_notify_cq", err)
	}
	a.release(t, errOver)
	if _, err := out.Await(bounded(t)); !errors.Is(err, syscall.EIO) {
		t.Errorf("the outstanding SEND ended with %v, want an error that wraps EIO", err)
	}
}

// markerless is a device that refuses markers. (If the device takes only the first part of a list,
// the reactor posts a marker: a signaled request that retires this part.) To post the lists of a pass,
// the reactor calls markerless.Execute. To post a marker, it calls Execute of the queue pair's context.
// So the test binds a queue pair of type dressedQP, whose context has type refusing.
// markerless.Execute replaces each dressedQP by the device's queue pair.
type markerless struct {
	*faulty
	refused atomic.Int64
}

func (m *markerless) Execute(t *verbs.IOBatch) error {
	for i := range t.Sends {
		t.Sends[i].QP = bare(t.Sends[i].QP)
	}
	for i := range t.Recvs {
		t.Recvs[i].QP = bare(t.Recvs[i].QP)
	}
	return m.faulty.Execute(t)
}

// bare returns the device's queue pair.
func bare(qp verbs.QP) verbs.QP {
	if d, ok := qp.(*dressedQP); ok {
		return d.QP
	}
	return qp
}

// dressedQP is the device's queue pair with another context.
type dressedQP struct {
	verbs.QP
	ctx verbs.Context
}

func (d *dressedQP) Context() verbs.Context { return d.ctx }

// refusing is a context that refuses every list of sends with ENOMEM.
type refusing struct {
	verbs.Context
	m *markerless
}

func (r refusing) Execute(t *verbs.IOBatch) error {
	for i := range t.Sends {
		t.Sends[i].Accepted, t.Sends[i].Errno = 0, syscall.ENOMEM
		r.m.refused.Add(1)
	}
	return nil
}

// Rule: if the device takes only the first part of a list and then refuses the marker, the queue
// fails. The requests of the first part end when the queue is released.
func TestRefusedMarkerFailsTheQueue(t *testing.T) {
	var m *markerless
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 16}, func(c verbs.Context) verbs.Context {
		m = &markerless{faulty: newFaulty(c)}
		return m
	})
	defer b.close(t)
	defer a.closeRest(t)
	failed := a.onFail(t)
	a.do(t, func() {
		a.q.Bind(&dressedQP{a.q.QP(), refusing{a.ctx, m}}, verbs.QPCap{MaxInlineData: 64})
	})
	const cut, n = 3, 8
	m.cutAt.Store(cut)
	fs := a.batch(t, b, n)
	if err := comes(t, "the failure", failed); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the queue failed with %v, want ENOMEM, the errno of the refused marker", err)
	}
	for _, f := range fs[cut:] {
		if _, err := f.Await(bounded(t)); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("a request that the device refused ended with %v, want ENOMEM", err)
		}
	}
	if st := a.r.Stats(); st.Stranded != cut || st.Outstanding != cut || m.refused.Load() != 1 {
		t.Errorf("%d sends stranded, %d outstanding, %d markers refused; want %d, %d and 1", st.Stranded, st.Outstanding, m.refused.Load(), cut, cut)
	}
	a.release(t, errOver)
	for _, f := range fs[:cut] {
		if _, err := f.Await(bounded(t)); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("a request that the device accepted ended with %v, want ErrQueueFailed that wraps ENOMEM", err)
		}
	}
}

// flaky is a device whose completion channel can fail. If flaky.fail is set, the next GetEvent
// returns an error, and the event stays in the channel.
type flaky struct {
	verbs.Context
	fail atomic.Bool // set by the test, cleared by GetEvent
}

type flakyChannel struct {
	verbs.CompChannel
	f *flaky
}

func (f *flaky) CreateCompChannel() (verbs.CompChannel, error) {
	ch, err := f.Context.CreateCompChannel()
	return &flakyChannel{ch, f}, err
}

func (f *flaky) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	return f.Context.CreateCQ(cqe, ch.(*flakyChannel).CompChannel, vector, userData)
}

func (c *flakyChannel) GetEvent() (verbs.CQ, bool, error) {
	if c.f.fail.CompareAndSwap(true, false) {
		return nil, false, &verbs.OpError{Op: "ibv_get_cq_event", Object: c.String(), Errno: syscall.EIO}
	}
	return c.CompChannel.GetEvent()
}

// Rule: if GetEvent fails, the reactor arms the completion queues again. So the next completion wakes
// the loop. (In this test no other mechanism would find the completion: no goroutine drives, and
// there is no recheck.)
func TestFailedGetEventDoesNotKeepAsleep(t *testing.T) {
	var f *flaky
	cfg := reactor.Config{NoCallerDriving: true, Spin: -1, Recheck: -1}
	a, b := pairOf(t, cfg, reactor.QueueConfig{}, func(c verbs.Context) verbs.Context { f = &flaky{Context: c}; return f })
	defer b.close(t)
	defer a.close(t)
	for range 20 {
		f.fail.Store(true)
		answered(t, a, b) // the event wakes the loop, and GetEvent fails
		answered(t, a, b)
		answered(t, a, b)
	}
}
