package reactor_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a queue without a queue pair takes no requests, and one that was
// discarded touches its memory no more.
func TestRequestsNeedAQueuePair(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	q := must(l.r.Prepare(reactor.QueueConfig{PD: l.pd, ControlDepth: 1}))(t)
	refusedWith := func(when string, want error) {
		t.Helper()
		s := reactor.Send{Opcode: verbs.WRSend, Sink: make(tally, 1)}
		_, try := q.Submit(context.Background(), &s, &reactor.Payload{}, reactor.Try)
		_, post := q.Submit(context.Background(), &s, &reactor.Payload{}, reactor.Wait)
		for name, err := range map[string]error{
			"TryPost": try, "Post": post, "PostControl": q.PostControl(&s, reactor.Payload{}),
			"PostRecv": q.PostRecv(&reactor.Recv{Sink: s.Sink}, nil, reactor.Wait),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s %s: %v, want %v", name, when, err, want)
			}
		}
	}
	refusedWith("before Bind", reactor.ErrRequest)
	l.do(t, func() { check(t, q.Admit()) })
	refusedWith("between Admit and Bind", reactor.ErrRequest)
	var qp verbs.QP
	l.do(t, func() {
		init := q.InitAttr()
		qp = must(l.pd.CreateQP(init))(t)
		q.Bind(qp, init.Cap)
		if err := q.Err(); err != nil {
			t.Errorf("a bound queue refuses requests: %v", err)
		}
		check(t, qp.Close())
		check(t, q.Release(errOver))
	})
	refusedWith("after Release", reactor.ErrQueueFailed)
	q = must(l.r.Prepare(reactor.QueueConfig{PD: l.pd, ControlDepth: 1}))(t)
	check(t, q.Discard())
	refusedWith("after Discard", reactor.ErrClosed)
}

// Rule: a queue that failed before it had its queue pair stays failed.
func TestBindDoesNotForgiveAFailure(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	q := must(l.r.Prepare(reactor.QueueConfig{PD: l.pd}))(t)
	l.do(t, func() {
		check(t, q.Admit())
		q.Fail(errOver)
		init := q.InitAttr()
		qp := must(l.pd.CreateQP(init))(t)
		q.Bind(qp, init.Cap)
		if _, err := q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{}, reactor.Try); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, errOver) {
			t.Errorf("a request of a failed queue: %v, want ErrQueueFailed with the cause", err)
		}
		check(t, qp.Close())
		check(t, q.Release(errOver))
	})
}

// Rule: depths that no wr_id can number are refused, and their sum does not
// overflow.
func TestHugeDepthsAreRefused(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, nil)
	defer l.close(t)
	const most = 1<<16 - 2 // slots are 16 bits; 1 is the marker's
	for _, c := range []reactor.QueueConfig{
		{SendDepth: math.MaxInt},
		{RecvDepth: math.MaxInt},
		{ControlDepth: math.MaxInt},
		{SendDepth: math.MaxInt, RecvDepth: math.MaxInt, ControlDepth: math.MaxInt},
		{SendDepth: math.MaxInt/2 + 1, ControlDepth: math.MaxInt/2 + 1},
		{SendDepth: most, RecvDepth: -1},
		{SendDepth: most / 2, RecvDepth: most / 2, ControlDepth: 1},
		{SendDepth: math.MinInt},
		{ControlDepth: math.MinInt},
		{MaxSGE: math.MaxInt}, {Inline: math.MaxInt}, {SignalEvery: math.MaxInt}, {SignalEvery: -1},
	} {
		c.PD = l.pd
		if q, err := l.r.Prepare(c); !errors.Is(err, reactor.ErrConfig) {
			t.Errorf("%+v: %v, want ErrConfig", c, err)
			if err == nil {
				check(t, q.Discard())
			}
		}
	}
	q, err := l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: most - 1, RecvDepth: -1, MaxSGE: 1, Inline: -1})
	if err != nil {
		t.Fatalf("the largest queue there may be: %v", err)
	}
	if err := q.PostRecv(&reactor.Recv{Sink: make(tally, 1)}, nil, reactor.Wait); !errors.Is(err, reactor.ErrRequest) || errors.Is(err, reactor.ErrRecvFull) {
		t.Errorf("a receive where there is never room: %v, want ErrRequest", err)
	}
	check(t, q.Discard())
}

// doomed admits a queue to a stepped reactor, moves it to ERR and has it post
// n sends, which the device flushes at once.
func (l *lone) doomed(t *testing.T, q *reactor.Queue, n int, sink reactor.Sink) {
	t.Helper()
	init := q.InitAttr()
	qp := must(l.pd.CreateQP(init))(t)
	q.Bind(qp, init.Cap)
	check(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	check(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	for range n {
		_, err := q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: sink}, &reactor.Payload{}, reactor.Try)
		check(t, err)
	}
}

// Rule: the completions of a released queue keep their room in the completion
// queue until it was polled empty: the queues after it can never overrun it.
func TestReleasedCompletionsKeepTheirRoom(t *testing.T) {
	const depth, rounds = 15, 5
	l := newLone(t, reactor.Config{CQEntries: depth + 1, PollBatch: 4, Stepped: true}, nil)
	defer l.close(t)
	ended := 0
	sink := called(func(_ reactor.Completion, err error) {
		if ended++; errors.Is(err, reactor.ErrOverrun) {
			t.Errorf("request %d ended with %v", ended, err)
		}
	})
	for round := range rounds {
		q := must(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: depth, RecvDepth: depth}))(t)
		q.OnFail(func(err error) { t.Errorf("round %d: the queue failed with %v", round, err) })
		err := q.Admit()
		for n := 0; errors.Is(err, reactor.ErrTooMany) && n < depth; n++ { // each try polls a batch
			err = q.Admit()
		}
		check(t, err)
		l.doomed(t, q, depth, sink)
		l.r.Step() // all posted, a batch polled
		check(t, q.QP().Close())
		check(t, q.Release(errOver))
		if want := (round + 1) * depth; ended != want {
			t.Fatalf("round %d: %d requests ended, want %d", round, ended, want)
		}
	}
}

// Rule: as above, where the device gives completions as long as it likes.
func TestRoomComesBackWhenPolledEmpty(t *testing.T) {
	var h *hooked
	const depth = 15
	l := newLone(t, reactor.Config{CQEntries: depth + 1, PollBatch: 4, Stepped: true},
		func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
	defer l.close(t)
	first := must(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: depth, RecvDepth: depth}))(t)
	check(t, first.Admit())
	l.doomed(t, first, 0, nil)
	l.r.Step()
	check(t, first.QP().Close())
	check(t, first.Release(errOver))
	h.set(func(_ verbs.Context, turn *verbs.Turn) error { // late completions of the first queue
		for i := range turn.Polls {
			turn.Polls[i].N = len(turn.Polls[i].WC)
		}
		return nil
	})
	second := must(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: 1, RecvDepth: 1}))(t)
	for range 3 {
		if err := second.Admit(); !errors.Is(err, reactor.ErrTooMany) {
			t.Fatalf("admitted with %v while the first queue's completions come, want ErrTooMany", err)
		}
		l.r.Step()
	}
	h.hook.Store(nil)
	check(t, second.Admit())
	l.doomed(t, second, 0, nil)
	check(t, second.QP().Close())
	check(t, second.Release(errOver))
}
