package reactor_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: when Release returns, every submitted request has completed, even if it was not posted.
func TestReleaseEndsWhatWasNotPosted(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	box := make(tally, 4)
	_, sge := a.bytes(0, 8)
	a.do(t, func() {
		must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Block))
		must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: box}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(reactor.ErrClosed))
		if len(box) != 2 {
			t.Errorf("%d requests had completed when Release returned, want 2", len(box))
		}
	})
	for range len(box) {
		if err := <-box; !errors.Is(err, reactor.ErrClosed) {
			t.Errorf("a request of a released queue ended with %v, want ErrClosed", err)
		}
	}
	a.closeRest(t)
}

// Rule: a queue without receives (RecvDepth -1) is released like any other queue.
func TestReleaseOfAQueueThatReceivesNothing(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{RecvDepth: -1})
	defer b.close(t)
	box := make(tally, 1)
	_, sge := a.bytes(0, 8)
	addr, key := b.remote(0)
	a.do(t, func() {
		must.Get(a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key, Sink: box}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(reactor.ErrClosed))
	})
	if err := <-box; !errors.Is(err, reactor.ErrClosed) {
		t.Errorf("a request of a released queue ended with %v, want ErrClosed", err)
	}
	a.closeRest(t)
}

// tally collects the results of requests.
type tally chan error

func (y tally) Complete(_ reactor.SinkContext, _ reactor.Completion, err error) { y <- err }

// Rule: when Release returns, the queue has no outstanding operation, and the functions given to
// Idle and SendsIdle have run.
func TestReleaseLeavesNothingOut(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.closeRest(t)
	f := a.stray(t, reactor.Send{})
	box := make(tally, 2)
	_, sge := a.bytes(0, 8)
	must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Block))
	a.do(t, a.r.Flush)
	if st := a.r.Stats(); st.Outstanding != 1 {
		t.Fatalf("%d sends outstanding before the release, want 1", st.Outstanding)
	}
	idle, sends := false, false
	a.do(t, func() {
		a.q.SendsIdle(func() { sends = true })
		a.q.Idle(func() { idle = true })
		if idle || sends {
			t.Error("Idle or SendsIdle called its function while requests were outstanding, want no call")
		}
		a.releaseHeld(t, errOver)
		if !idle || !sends {
			t.Errorf("when Release returned, idle = %t and sends = %t, want true for both: Idle and SendsIdle have called their functions", idle, sends)
		}
	})
	if _, err := f.Await(bounded(t)); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, errOver) {
		t.Errorf("the outstanding SEND ended with %v, want ErrQueueFailed that wraps the cause", err)
	}
	if err := comes(t, "the receive", box); !errors.Is(err, errOver) {
		t.Errorf("the outstanding receive ended with %v, want the cause", err)
	}
	if st := a.r.Stats(); st.Outstanding != 0 || st.Queues != 0 {
		t.Errorf("after Release Stats counts %d outstanding sends and %d queues, want 0 and 0", st.Outstanding, st.Queues)
	}
}

// Rule: a queue becomes idle when its last send ends, even if the device has refused to post that
// send.
func TestIdleAfterARefusedList(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	f.cutAt.Store(0)
	idle := make(chan struct{})
	s, p := a.write(b)
	var fut reactor.Future
	a.do(t, func() {
		var err error
		fut, err = a.q.Submit(context.Background(), s, &p, reactor.NonBlock)
		must.Do(t, err)
		a.q.SendsIdle(func() { close(idle) })
	})
	if _, err := fut.Await(bounded(t)); err == nil {
		t.Error("a WRITE that the device refused succeeded, want an error")
	}
	comes(t, "the function given to SendsIdle", idle)
}

// Rule: when no submitter can touch the memory of a released queue any more, the next pass gives the
// memory back. The program need not call a method of the queue for this.
func TestReleasedMemoryIsGivenBack(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1})
	defer b.close(t)
	defer a.closeRest(t)
	out := a.stray(t, reactor.Send{})
	waiter := make(chan error, 1)
	s, p := a.write(b)
	go func() {
		// Submit waits for a slot, or fails because the queue was released.
		_, err := a.q.Submit(context.Background(), s, &p, reactor.Block)
		waiter <- err
	}()
	before := a.ctx.Objects().MR
	a.release(t, errOver)
	if err := comes(t, "the Submit that waits for a slot", waiter); !errors.Is(err, reactor.ErrQueueFailed) {
		t.Errorf("Submit to a released queue returned %v, want ErrQueueFailed", err)
	}
	a.do(t, a.r.Flush) // a pass, which gives the memory back
	if n := a.ctx.Objects().MR; n != before-1 {
		t.Errorf("%d memory regions are registered after the release, want %d: the region of the queue must be gone", n, before-1)
	}
	out.Discard()
}

// Rule: after a released queue was reclaimed, no entry of Reactor.outcomes (results for sinks)
// refers to the queue.
func TestAGoneQueueIsForgotten(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4})
	defer b.close(t)
	defer a.closeRest(t)
	ended := make(chan struct{}, 1)
	s, p := a.write(b)
	s.Sink = called(func(reactor.Completion, error) { ended <- struct{}{} })
	if _, err := a.q.Submit(context.Background(), s, &p, reactor.Block); err != nil {
		t.Fatalf("Submit returned %v, want nil", err)
	}
	comes(t, "the result", ended)
	q := a.q
	a.do(t, func() {
		if a.r.OutcomesOf(q) == 0 {
			t.Error("no entry of Reactor.outcomes refers to the queue before its release, want at least one")
		}
	})
	a.release(t, errOver)
	a.do(t, a.r.Flush) // a pass, which reclaims the queue
	a.do(t, func() {
		if n := a.r.OutcomesOf(q); n != 0 {
			t.Errorf("%d entries of Reactor.outcomes refer to a reclaimed queue, want 0", n)
		}
	})
}

// Rule: a queue may be released while other goroutines are at any point of Submit and PostRecv. For
// each of their calls, either the call returns an error or its request completes exactly one time.
// The queue's memory stays until these calls have returned.
func TestSubmittersMeetTheRelease(t *testing.T) {
	const rounds = 10
	for range rounds {
		a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 8, RecvDepth: 8})
		var accepted, ended atomic.Int64
		count := called(func(reactor.Completion, error) { ended.Add(1) })
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		hammer := func(post func() error) {
			wg.Go(func() {
				for n := 0; ; n++ {
					err := post()
					switch {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, reactor.ErrQueueFailed):
						return
					}
					if n == 10 {
						begun <- struct{}{}
					}
				}
			})
		}
		s, p := a.write(b)
		s.Sink = count
		for range 2 {
			hammer(func() error { _, err := a.q.Submit(context.Background(), s, &p, reactor.NonBlock); return err })
			hammer(func() error { return a.q.PostRecv(&reactor.Recv{Sink: count}, p.SGEs, reactor.Block) })
		}
		for range 4 {
			<-begun
		}
		a.release(t, errOver)
		wg.Wait()
		a.closeRest(t) // Close returns no ErrBusy, because all submitters have returned
		if accepted.Load() != ended.Load() {
			t.Errorf("%d requests were accepted and %d ended, want equal numbers", accepted.Load(), ended.Load())
		}
		b.close(t)
	}
}

// Rule: the memory of a released queue stays while a submitter is in the middle of a call.
// Reactor.Close waits for this call. If the context of Close ends first, Close returns ErrBusy.
func TestMemoryOutlivesASubmitter(t *testing.T) {
	for name, enter := range map[string]func(*reactor.Queue) func(){
		"send": (*reactor.Queue).SendUnderWay, "control": (*reactor.Queue).ControlUnderWay, "receive": (*reactor.Queue).RecvUnderWay,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, reactor.Config{}, reactor.QueueConfig{ControlDepth: 2})
			defer b.close(t)
			s, p := a.write(b)
			must.Get(must.Get(a.q.Submit(bounded(t), s, &p, reactor.Block))(t).Await(bounded(t)))(t) // from now on the queue has memory
			before := a.ctx.Objects().MR
			back := enter(a.q)
			a.release(t, errOver)
			for range 3 {
				a.do(t, a.r.Flush)
			}
			if n := a.ctx.Objects().MR; n != before {
				t.Errorf("%d memory regions are registered while a submitter may write to the queue's memory, want %d", n, before)
			}
			// Close returns ErrBusy if it waits for the submitter when its context ends. If the loop gets
			// no processor in time, the context ends before Close reaches this wait. Then this for
			// statement calls Close again, with twice the timeout.
			for wait := 20 * time.Millisecond; ; wait *= 2 {
				short, cancel := context.WithTimeout(context.Background(), wait)
				err := a.r.Close(short)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || wait > patience {
					t.Fatalf("Close with a timeout of %v returned %v, want ErrBusy and DeadlineExceeded", wait, err)
				}
				if errors.Is(err, verbs.ErrBusy) {
					break
				}
			}
			closed := make(chan error, 1)
			go func() { closed <- a.r.Close(bounded(t)) }()
			back()
			must.Do(t, comes(t, "the end of Close after the submitter's call", closed))
			a.closeRest(t)
		})
	}
}

var errKeeps = errors.New("the device keeps the memory")

// keepingPD is a protection domain. While keepingPD.keeps is set, its memory regions cannot be
// deregistered. While keepingPD.refuses is set, it registers none.
type keepingPD struct {
	verbs.PD
	keeps, refuses bool
}

type keptMR struct {
	verbs.MR
	pd *keepingPD
}

func (p *keepingPD) RegMR(addr, length, iova uint64, access verbs.AccessFlags) (verbs.MR, error) {
	if p.refuses {
		return nil, syscall.ENOMEM
	}
	mr, err := p.PD.RegMR(addr, length, iova, access)
	return keptMR{mr, p}, err
}

func (m keptMR) Close() error {
	if m.pd.keeps {
		return errKeeps
	}
	return m.MR.Close()
}

// Rule: while the device refuses to give back the memory of a released queue, Close returns the
// device's error. The next Close tries again.
func TestRefusedMemoryIsGivenBackLater(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	pd := &keepingPD{PD: l.pd, keeps: true}
	q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: pd}))(t)
	l.do(t, func() {
		must.Do(t, q.Admit())
		init := q.InitAttr()
		q.Bind(must.Get(l.pd.CreateQP(init))(t), init.Cap)
		f, err := q.Transfer(bounded(t), &reactor.Transfer{Opcode: verbs.WRRDMAWrite}, reactor.NonBlock) // from now on the queue has memory
		try(t, err)
		f.Discard()
		must.Do(t, q.QP().Close())
		must.Do(t, q.Release(errOver))
	})
	if err := l.r.Close(bounded(t)); !errors.Is(err, verbs.ErrBusy) || !errors.Is(err, errKeeps) {
		t.Errorf("Close returned %v, want ErrBusy that wraps %q", err, errKeeps)
	}
	pd.keeps = false
	l.close(t)
}

// Rule: if there is no memory for a request, each way to submit it returns the error, and no slot is lost. (A queue has
// memory for its requests from the first one on.) A queue without memory for a control request fails: no later completion
// would cause another try.
func TestRequestsWithoutMemory(t *testing.T) {
	const depth = 4
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	defer l.close(t)
	pd := &keepingPD{PD: l.pd, refuses: true}
	q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: pd, SendDepth: depth, RecvDepth: depth, ControlDepth: depth}))(t)
	l.do(t, func() {
		try(t, q.Admit())
		init := q.InitAttr()
		qp, err := l.pd.CreateQP(init)
		try(t, err)
		q.Bind(qp, init.Cap)
	})
	box := make(tally, 4*depth)
	write := reactor.Transfer{Opcode: verbs.WRRDMAWrite, Sink: box}
	send := reactor.Send{Opcode: verbs.WRSend, Sink: box}
	var many reactor.BatchSubmitter
	many.Reset(q)
	ways := map[string]func() error{
		"Transfer": func() error { _, err := q.Transfer(t.Context(), &write, reactor.NonBlock); return err },
		"TransferWait": func() error {
			_, err := q.TransferWait(t.Context(), &reactor.Transfer{Opcode: verbs.WRRDMAWrite})
			return err
		},
		"Submit":      func() error { _, err := q.Submit(t.Context(), &send, &reactor.Payload{}, reactor.NonBlock); return err },
		"PostControl": func() error { return q.PostControl(&send, reactor.Payload{}) },
		"PostRecv":    func() error { return q.PostRecv(&reactor.Recv{Sink: box}, nil, reactor.NoWakeup) },
		"a batch's Transfer": func() error {
			defer many.Submit(reactor.NonBlock)
			_, err := many.Transfer(t.Context(), &write, depth, reactor.NonBlock)
			return err
		},
		"a batch's Send": func() error {
			defer many.Submit(reactor.NonBlock)
			_, err := many.Send(t.Context(), &send, &reactor.Payload{}, depth, reactor.NonBlock)
			return err
		},
		"Fill": func() error { _, err := q.Fill(t.Context(), &send, &reactor.Payload{}, reactor.NonBlock); return err },
	}
	for name, way := range ways {
		for range 2 * depth {
			if err := way(); !errors.Is(err, syscall.ENOMEM) {
				t.Fatalf("%s without memory returned %v, want %v", name, err, syscall.ENOMEM)
			}
		}
	}
	pd.refuses = false
	for _, name := range []string{"Transfer", "PostControl", "PostRecv"} {
		for k := range depth {
			if err := ways[name](); err != nil {
				t.Errorf("%s %d of %d after the memory came back: %v", name, k+1, depth, err)
			}
		}
		if err := ways[name](); !errors.Is(err, reactor.ErrQueueFull) && !errors.Is(err, reactor.ErrRecvFull) {
			t.Errorf("one %s more than there are slots returned %v", name, err)
		}
	}
	l.r.Step()
	if err := q.Err(); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("after a control request without memory the error of the queue is %v, want %v", err, syscall.ENOMEM)
	}
	must.Do(t, q.QP().Close())
	l.do(t, func() { try(t, q.Release(errOver)) })
}

// Rule: a slot for which there is no memory does not hide free slots that have theirs. (The list gives the slot first that
// was freed last.)
func TestSlotsWithMemoryAreFound(t *testing.T) {
	const depth, first = 144, 128 // the first arena has memory for 128 slots
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: depth})
	defer func() { a.close(t); b.close(t) }()
	pd := &keepingPD{PD: a.pd}
	q := must.Get(a.r.Prepare(reactor.QueueConfig{PD: pd, SendDepth: depth, RecvDepth: -1}))(t)
	a.do(t, func() {
		try(t, q.Admit())
		init := q.InitAttr()
		qp, err := a.pd.CreateQP(init)
		try(t, err)
		q.Bind(qp, init.Cap)
	})
	box := make(tally, 4*depth)
	write := reactor.Transfer{Opcode: verbs.WRRDMAWrite, Sink: box}
	one := func() error { _, err := q.Transfer(t.Context(), &write, reactor.NonBlock); return err }
	var many reactor.BatchSubmitter
	many.Reset(q)
	batch := func() error {
		defer many.Submit(reactor.NonBlock)
		_, err := many.Transfer(t.Context(), &write, 0, reactor.NonBlock)
		return err
	}
	back := q.SendUnderWay() // slot 0
	for range first - 1 {
		must.Do(t, one())
	}
	unmade := q.SendUnderWay() // slot 128
	pd.refuses = true
	back()
	unmade() // now slot 128 is on top, and slot 0 below it
	must.Do(t, batch())
	if err := one(); err == nil {
		t.Error("a slot without memory was used")
	}
	pd.refuses = false
	must.Do(t, one())
	must.Do(t, q.QP().Close())
	a.do(t, func() { try(t, q.Release(errOver)) })
	for range first + 1 {
		<-box
	}
	a.r.Step()
}
