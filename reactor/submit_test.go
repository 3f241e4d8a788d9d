package reactor_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a Queue without a queue pair accepts no requests. After Discard, a call of Submit does not
// touch the memory of the Queue.
func TestRequestsNeedAQueuePair(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, ControlDepth: 1}))(t)
	refusedWith := func(when string, want error) {
		t.Helper()
		s := reactor.Send{Opcode: verbs.WRSend, Sink: make(tally, 1)}
		_, try := q.Submit(context.Background(), &s, &reactor.Payload{}, reactor.NonBlock)
		_, post := q.Submit(context.Background(), &s, &reactor.Payload{}, reactor.Block)
		for name, err := range map[string]error{
			"Submit with NonBlock": try, "Submit with Block": post, "PostControl": q.PostControl(&s, reactor.Payload{}),
			"PostRecv": q.PostRecv(&reactor.Recv{Sink: s.Sink}, nil, reactor.Block),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s, %s, returned %v, want %v", name, when, err, want)
			}
		}
	}
	refusedWith("before Bind", reactor.ErrRequest)
	l.do(t, func() { must.Do(t, q.Admit()) })
	refusedWith("between Admit and Bind", reactor.ErrRequest)
	var qp verbs.QP
	l.do(t, func() {
		init := q.InitAttr()
		qp = must.Get(l.pd.CreateQP(init))(t)
		q.Bind(qp, init.Cap)
		if err := q.Err(); err != nil {
			t.Errorf("Err of a bound queue is %v, want nil", err)
		}
		must.Do(t, qp.Close())
		must.Do(t, q.Release(errOver))
	})
	refusedWith("after Release", reactor.ErrQueueFailed)
	q = must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, ControlDepth: 1}))(t)
	must.Do(t, q.Discard())
	refusedWith("after Discard", reactor.ErrClosed)
}

// Rule: a queue that failed before Bind is still failed after Bind.
func TestBindDoesNotForgiveAFailure(t *testing.T) {
	l := newLone(t, reactor.Config{}, nil)
	defer l.close(t)
	q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd}))(t)
	l.do(t, func() {
		must.Do(t, q.Admit())
		q.Fail(errOver)
		init := q.InitAttr()
		qp := must.Get(l.pd.CreateQP(init))(t)
		q.Bind(qp, init.Cap)
		if _, err := q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{}, reactor.NonBlock); !errors.Is(err, reactor.ErrQueueFailed) || !errors.Is(err, errOver) {
			t.Errorf("Submit after Bind returned %v, want ErrQueueFailed that wraps the cause", err)
		}
		must.Do(t, qp.Close())
		must.Do(t, q.Release(errOver))
	})
}

// Rule: Prepare returns ErrConfig if the queue has more slots than a wr_id can number, even if the sum
// of the depths overflows. It also returns ErrConfig for other numbers that are out of range.
func TestHugeDepthsAreRefused(t *testing.T) {
	l := newLone(t, reactor.Config{Stepped: true}, func(ctx verbs.Context) verbs.Context { return fewEntries{ctx, 1 << 20, new(int(1 << 10))} })
	defer l.close(t)
	const most = 1<<16 - 2 // the largest number of slots, including the marker's; a slot number has 16 bits in the wr_id
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
			t.Errorf("Prepare(%+v) returned %v, want ErrConfig", c, err)
			if err == nil {
				must.Do(t, q.Discard())
			}
		}
	}
	q, err := l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: most - 1, RecvDepth: -1, MaxSGE: 1, Inline: -1})
	if err != nil {
		t.Fatalf("Prepare of the largest possible queue returned %v, want nil", err)
	}
	if err := q.PostRecv(&reactor.Recv{Sink: make(tally, 1)}, nil, reactor.Block); !errors.Is(err, reactor.ErrRequest) || errors.Is(err, reactor.ErrRecvFull) {
		t.Errorf("PostRecv on a queue without receives returned %v, want ErrRequest, and not ErrRecvFull", err)
	}
	must.Do(t, q.Discard())
}

// doomed() binds q to a new queue pair, moves the queue pair to ERR, and submits n sends. When a pass
// posts them, the device flushes them at once.
func (l *lone) doomed(t *testing.T, q *reactor.Queue, n int, sink reactor.Sink) {
	t.Helper()
	init := q.InitAttr()
	qp := must.Get(l.pd.CreateQP(init))(t)
	q.Bind(qp, init.Cap)
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	for range n {
		must.Get(q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: sink}, &reactor.Payload{}, reactor.NonBlock))(t)
	}
}

// Rule: the entries that a queue has reserved in a completion queue stay reserved after Release,
// until the completion queue was polled empty. So later queues cannot overrun the completion queue.
func TestReleasedCompletionsKeepTheirRoom(t *testing.T) {
	const depth, rounds = 15, 5
	l := newLone(t, reactor.Config{CQEntries: depth + 1, PollBatch: 4, Stepped: true}, nil)
	defer l.close(t)
	ended := 0
	sink := called(func(_ reactor.Completion, err error) {
		if ended++; errors.Is(err, reactor.ErrOverrun) {
			t.Errorf("request %d ended with %v, want no overrun of the completion queue", ended, err)
		}
	})
	for round := range rounds {
		q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: depth, RecvDepth: depth}))(t)
		q.OnFail(func(err error) { t.Errorf("round %d: the queue failed with %v, want no failure", round, err) })
		err := q.Admit()
		for n := 0; errors.Is(err, reactor.ErrTooMany) && n < depth; n++ { // each call of Admit polls one batch of completions
			err = q.Admit()
		}
		must.Do(t, err)
		l.doomed(t, q, depth, sink)
		l.r.Step() // posts all requests, polls one batch of completions
		must.Do(t, q.QP().Close())
		must.Do(t, q.Release(errOver))
		if want := (round + 1) * depth; ended != want {
			t.Fatalf("round %d: %d requests ended, want %d", round, ended, want)
		}
	}
}

// Rule: while each poll returns as many completions as it has room for, the entries of a released queue
// stay reserved. (The completion queue may then hold further completions of the released queue.)
func TestRoomComesBackWhenPolledEmpty(t *testing.T) {
	onlySoft(t, "a device may grant more entries than are asked for, and the second queue has room then")
	var h *hooked
	const depth = 15
	l := newLone(t, reactor.Config{CQEntries: depth + 1, PollBatch: 4, Stepped: true},
		func(c verbs.Context) verbs.Context { h = &hooked{Context: c}; return h })
	defer l.close(t)
	first := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: depth, RecvDepth: depth}))(t)
	must.Do(t, first.Admit())
	l.doomed(t, first, 0, nil)
	l.r.Step()
	must.Do(t, first.QP().Close())
	must.Do(t, first.Release(errOver))
	h.set(func(_ verbs.Context, turn *verbs.IOBatch) error { // late completions of the first queue
		for i := range turn.Polls {
			turn.Polls[i].N = len(turn.Polls[i].WC)
		}
		return nil
	})
	second := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: 1, RecvDepth: 1}))(t)
	for range 3 {
		if err := second.Admit(); !errors.Is(err, reactor.ErrTooMany) {
			t.Fatalf("Admit of the second queue returned %v while polls return completions of the first, want ErrTooMany", err)
		}
		l.r.Step()
	}
	h.hook.Store(nil)
	must.Do(t, second.Admit())
	l.doomed(t, second, 0, nil)
	must.Do(t, second.QP().Close())
	must.Do(t, second.Release(errOver))
}

// smallPort is a device whose port limits messages to smallMessage bytes.
type smallPort struct{ verbs.Context }

const smallMessage = 4096

func (s smallPort) QueryPort(p uint8) (verbs.PortAttr, error) {
	a, err := s.Context.QueryPort(p)
	a.MaxMsgSize = smallMessage
	return a, err
}

// Rule: Submit and PostControl return ErrRequest for a request that the device would refuse, and for
// flags and opcodes that users must not set. Such a request takes no slot and does not affect other
// requests.
func TestRequestsOfOthersAreRefused(t *testing.T) {
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4, Inline: 32}, func(c verbs.Context) verbs.Context { return smallPort{c} })
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	_, full := a.bytes(0, smallMessage)
	_, word := a.bytes(0, 8)
	write := reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}
	with := func(flags verbs.SendFlags) reactor.Send { s := write; s.Flags = flags; return s }
	of := func(op verbs.WROpcode) reactor.Send { s := write; s.Opcode = op; return s }
	sges := func(s ...verbs.SGE) []verbs.SGE { return s }
	good := func() reactor.Future {
		f := must.Get(a.q.Submit(context.Background(), &write, &reactor.Payload{SGEs: sges(word)}, reactor.NonBlock))(t)
		return f
	}
	var fs []reactor.Future
	a.do(t, func() {
		fs = append(fs, good())
		for name, c := range map[string]struct {
			s reactor.Send
			p reactor.Payload
		}{
			"IP_CSUM":                                   {with(verbs.SendIPCsum), reactor.Payload{SGEs: sges(word)}},
			"INLINE beyond Queue.Inline":                {with(verbs.SendInline), reactor.Payload{SGEs: sges(word), Header: make([]byte, 25)}},
			"a READ with INLINE":                        {reactor.Send{Opcode: verbs.WRRDMARead, Flags: verbs.SendInline, Remote: addr, RKey: key}, reactor.Payload{SGEs: sges(word)}},
			"an atomic with INLINE":                     {reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendInline, Remote: addr, RKey: key}, reactor.Payload{}},
			"an unknown flag":                           {with(1 << 30), reactor.Payload{SGEs: sges(word)}},
			"TSO":                                       {of(verbs.WRTSO), reactor.Payload{SGEs: sges(word)}},
			"an unknown opcode":                         {of(250), reactor.Payload{}},
			"one byte beyond the port's limit":          {write, reactor.Payload{SGEs: sges(full, verbs.SGE{Addr: word.Addr, Length: 1, LKey: word.LKey})}},
			"a header byte beyond the port's limit":     {write, reactor.Payload{SGEs: sges(full), Header: make([]byte, 1)}},
			"a header longer than Inline":               {write, reactor.Payload{SGEs: sges(word), Header: make([]byte, 33)}},
			"header and inline data longer than Inline": {write, reactor.Payload{Inline: make([]byte, 32), Header: make([]byte, 1)}},
			"a READ with a header":                      {of(verbs.WRRDMARead), reactor.Payload{SGEs: sges(word), Header: make([]byte, 1)}},
			"an atomic with a header":                   {of(verbs.WRAtomicFetchAndAdd), reactor.Payload{Header: make([]byte, 8)}},
			"an atomic with elements":                   {of(verbs.WRAtomicCmpAndSwp), reactor.Payload{SGEs: sges(word)}},
			"an atomic with inline data":                {of(verbs.WRAtomicFetchAndAdd), reactor.Payload{Inline: make([]byte, 8)}},
		} {
			for _, post := range []func() error{
				func() error { _, err := a.q.Submit(context.Background(), &c.s, &c.p, reactor.NonBlock); return err },
				func() error { s := c.s; s.Sink = make(tally, 1); return a.q.PostControl(&s, c.p) },
			} {
				if err := post(); !errors.Is(err, reactor.ErrRequest) {
					t.Errorf("%s: the call returned %v, want ErrRequest", name, err)
				}
			}
		}
		for range 3 {
			fs = append(fs, good()) // the refused requests took no slots: 3 of the 4 are still free
		}
	})
	for i, f := range fs {
		if _, err := f.Await(bounded(t)); err != nil {
			t.Errorf("WRITE %d of %d ended with %v, want success", i, len(fs), err)
		}
	}
	if st := a.r.Stats(); st.PostFailures != 0 || st.WorkRequests != uint64(len(fs)) {
		t.Errorf("Stats counts %d posted requests and %d refused lists, want %d and 0", st.WorkRequests, st.PostFailures, len(fs))
	}
	f, err := a.q.Submit(context.Background(), &write, &reactor.Payload{SGEs: sges(full)}, reactor.NonBlock)
	await(t, f, err) // the longest message that the port carries
	s := with(verbs.SendFence | verbs.SendSolicited)
	f, err = a.q.Submit(context.Background(), &s, &reactor.Payload{SGEs: sges(word), Header: make([]byte, 32)}, reactor.NonBlock)
	await(t, f, err)
}

// Rule: Transfer returns ErrRequest for flags that its opcode does not permit. INLINE is only for a
// WRITE of at most Queue.Inline bytes. SOLICITED is only for a WRITE with an immediate.
func TestTransfersOfOthersAreRefused(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{Inline: 32})
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	_, local := a.bytes(0, 40)
	for name, c := range map[string]struct {
		op    verbs.WROpcode
		flags verbs.SendFlags
		n     uint32
		good  bool
	}{
		"INLINE that fits":   {verbs.WRRDMAWrite, verbs.SendInline, 32, true},
		"INLINE too long":    {verbs.WRRDMAWrite, verbs.SendInline, 33, false},
		"a READ with INLINE": {verbs.WRRDMARead, verbs.SendInline, 8, false},
		"IP_CSUM":            {verbs.WRRDMAWrite, verbs.SendIPCsum, 8, false},
		"SIGNALED":           {verbs.WRRDMAWrite, verbs.SendSignaled, 8, true},
		"no flag":            {verbs.WRRDMAWrite, 0, 33, true},
		"a fenced READ":      {verbs.WRRDMARead, verbs.SendFence, 8, true},
		"FENCE and INLINE":   {verbs.WRRDMAWrite, verbs.SendFence | verbs.SendInline, 32, true},
		"a solicited WRITE":  {verbs.WRRDMAWrite, verbs.SendSolicited, 8, false},
	} {
		tr := reactor.Transfer{Opcode: c.op, Flags: c.flags, Remote: addr, RKey: key, Local: verbs.SGE{Addr: local.Addr, Length: c.n, LKey: local.LKey}}
		f, err := a.q.Transfer(bounded(t), &tr, reactor.Block)
		if err == nil {
			_, err = f.Await(bounded(t))
		}
		if c.good && err != nil || !c.good && !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("%s, permitted = %t: the transfer ended with %v; want success if permitted, and otherwise ErrRequest", name, c.good, err)
		}
	}
}
