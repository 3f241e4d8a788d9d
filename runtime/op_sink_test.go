package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// turnSink is a Sink that calls a function.
type turnSink func(SinkContext, Result, error)

func (fn turnSink) Complete(t SinkContext, r Result, err error) { fn(t, r, err) }

// runner is a Sink that starts n WRITEs in all, alternating between its two operations. When a
// WRITE completes, runner starts up to three more.
type runner struct {
	c     *Conn
	ops   [2]Op
	left  int // WRITEs not started yet
	out   int
	taken int // WRITEs started by Complete
	err   error
	over  chan struct{}
}

func (r *runner) Complete(t SinkContext, _ Result, err error) {
	r.out--
	for k := range 3 {
		if r.left == 0 || err != nil {
			break
		}
		switch err = r.c.StartFromSink(t, &r.ops[(r.left+k)%2], r, 0); {
		case err == nil:
			r.left--
			r.out++
			r.taken++
		case errors.Is(err, reactor.ErrQueueFull) && r.out > 0:
			err = nil
		}
	}
	r.err = errors.Join(r.err, err)
	if r.left == 0 && r.out == 0 || r.err != nil {
		r.over <- struct{}{}
	}
}

func (r *runner) run(t testing.TB, n int) {
	t.Helper()
	r.left, r.out = n-1, 1
	if err := r.c.TryStartTo(&r.ops[0], r, 0); err != nil {
		t.Fatal(err)
	}
	if <-r.over; r.err != nil {
		t.Fatal(r.err)
	}
}

// Rule: each operation that a sink starts also completes. When the sink of the last operation
// runs, the memory has no lease, not even one that is cached for sinks.
func TestStartInLeavesNothingInFlight(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{SendDepth: 24}})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	defer to.Close()
	remote := must.Get(to.Remote(0, 64))(t)
	for i := range 40 {
		r := &runner{c: a, over: make(chan struct{}, 1)}
		var from [2]*Region
		for k := range from {
			from[k] = must.Get(a.rt.NewRegion(64, 0))(t)
			s := must.Get(from[k].Slice(0, 64))(t)
			r.ops[k] = WriteOp(s, remote)
		}
		n := 1 + i*7
		r.run(t, n)
		if r.taken != n-1 {
			t.Errorf("%d of %d writes were started with the turn", r.taken, n)
		}
		for k := range from {
			if err := from[k].Close(); err != nil {
				t.Errorf("after %d writes: %v", n, err)
			}
		}
	}
}

// Rule: StartFromSink returns ErrReleased for released memory, even while leases on that memory
// are cached. With a zero SinkContext it behaves as TryStartTo. It also does so for operations
// other than WRITE and READ.
func TestStartInRefusesAsTryStart(t *testing.T) {
	a, b := connected(t, Config{})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))(t)
	defer to.Close()
	remote := must.Get(to.Remote(0, 64))(t)
	var bufs [2]Buffer
	for i := range bufs {
		bufs[i] = must.Get(a.rt.Alloc(64))(t)
	}
	mail := make(mailSink, 8)
	op, other, add := WriteOp(bufs[0].Slice(), remote), WriteOp(bufs[1].Slice(), remote), FetchAndAddOp(remote, 1)
	long := WriteOp(bufs[1].Slice(), Remote{Addr: remote.Addr, Length: 8, RKey: remote.RKey, Access: remote.Access})
	over := make(chan struct{})
	sink := turnSink(func(in SinkContext, _ Result, err error) {
		defer close(over)
		expect := func(what string, err, want error) {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		expect("the operation", err, nil)
		for range 2 { // the second call takes two leases: one stays in the cache
			expect("with the turn", a.StartFromSink(in, &op, mail, 1), nil)
		}
		expect("giving the buffer back", bufs[0].Release(), nil)
		expect("from memory that was given back", a.StartFromSink(in, &op, mail, 2), ErrReleased)
		expect("from other memory", a.StartFromSink(in, &other, mail, 1), nil)
		expect("an atomic", a.StartFromSink(in, &add, mail, 1), nil)
		expect("past the end", a.StartFromSink(in, &long, mail, 2), ErrRemoteRange)
		expect("without a sink", a.StartFromSink(in, &other, nil, 2), reactor.ErrRequest)
		if b.q.InSink(in) {
			t.Error("a turn holds a queue of another runtime")
		}
	})
	if err := a.TryStartTo(&op, sink, 0); err != nil {
		t.Fatal(err)
	}
	<-over
	if err := a.StartFromSink(SinkContext{}, &other, mail, 1); err != nil {
		t.Errorf("without a turn: %v", err)
	}
	for range 5 {
		if got := <-mail; got.err != nil || got.r.Tag != 1 {
			t.Errorf("what was started ended with tag %d, %v", got.r.Tag, got.err)
		}
	}
	for i := range bufs {
		if err := bufs[i].Release(); (i == 0) != errors.Is(err, ErrReleased) {
			t.Errorf("releasing buffer %d: %v", i, err)
		}
	}
}

// Rule: a failed StartFromSink leaves no lease on the operation's memory, however many times the
// sink tries. The memory can be closed as soon as StartFromSink has returned the error.
func TestStartInThatFailsLeavesNothingInFlight(t *testing.T) {
	const depth = 2
	a, b := connected(t, Config{Conn: Options{SendDepth: depth}})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	remote := must.Get(to.Remote(0, 64))(t)
	from, other := must.Get(a.rt.NewRegion(64, 0))(t), must.Get(a.rt.NewRegion(64, 0))(t)
	defer mustClose(t, other, to)
	op, full := WriteOp(must.Get(from.Slice(0, 64))(t), remote), WriteOp(must.Get(other.Slice(0, 64))(t), remote)
	mail, told := make(mailSink, depth), make(chan struct{})
	closed := make(chan error)
	sink := turnSink(func(in SinkContext, _ Result, err error) {
		for range depth {
			if err := a.StartFromSink(in, &full, mail, 0); err != nil {
				t.Error(err)
			}
		}
		for range 2 { // the first try must not leave a lease for the second
			if err := a.StartFromSink(in, &op, mail, 0); !errors.Is(err, reactor.ErrQueueFull) {
				t.Errorf("with %d of %d out: %v, want ErrQueueFull", depth, depth, err)
			}
		}
		close(told)
		if err := <-closed; err != nil {
			t.Errorf("closing memory that nothing has: %v", err)
		}
	})
	if err := a.TryStartTo(&op, sink, 0); err != nil {
		t.Fatal(err)
	}
	<-told
	closed <- from.Close()
	for range depth {
		if got := <-mail; got.err != nil {
			t.Error(got.err)
		}
	}
}

// Rule: if the SinkContext is of an earlier pass, StartFromSink behaves as TryStartTo, even while
// a later pass calls sinks.
func TestAnOldTurnStartsAsAnybody(t *testing.T) {
	a, b := connected(t, Config{})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	remote := must.Get(to.Remote(0, 64))(t)
	from := must.Get(a.rt.NewRegion(64, 0))(t)
	defer mustClose(t, from, to)
	op := WriteOp(must.Get(from.Slice(0, 64))(t), remote)
	turns, mail := make(chan SinkContext, 1), make(mailSink, 1)
	if err := a.TryStartTo(&op, turnSink(func(in SinkContext, _ Result, _ error) { turns <- in }), 0); err != nil {
		t.Fatal(err)
	}
	old := <-turns
	inside, outside := make(chan SinkContext), make(chan struct{})
	if err := a.StartTo(t.Context(), &op, turnSink(func(in SinkContext, _ Result, _ error) { inside <- in; <-outside }), 0); err != nil {
		t.Fatal(err)
	}
	now := <-inside // the second sink runs until outside is closed
	if a.q.InSink(old) || !a.q.InSink(now) {
		t.Errorf("the old turn holds the queue: %v, the new one: %v", a.q.InSink(old), a.q.InSink(now))
	}
	if err := a.StartFromSink(old, &op, mail, 7); err != nil {
		t.Error(err)
	}
	close(outside)
	if got := <-mail; got.err != nil || got.r.Tag != 7 {
		t.Errorf("what was started with an old turn ended with tag %d, %v", got.r.Tag, got.err)
	}
}

// Rule: if StartFromSink passes an operation on to TryStartTo, TryStartTo can use the slots that
// are cached for the sink.
func TestStartInFindsItsOwnRoom(t *testing.T) {
	const depth = 4
	a, b := connected(t, Config{Conn: Options{SendDepth: depth}})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))(t)
	remote := must.Get(to.Remote(0, 64))(t)
	from := must.Get(a.rt.NewRegion(64, 0))(t)
	defer mustClose(t, from, to)
	op, add := WriteOp(must.Get(from.Slice(0, 64))(t), remote), FetchAndAddOp(remote, 1)
	mail, over, started := make(mailSink, depth), make(chan struct{}), 0
	sink := turnSink(func(in SinkContext, _ Result, err error) {
		defer close(over)
		for i, o := range []*Op{&op, &op, &add, &add} { // the second call takes two slots: one stays in the cache
			if err := a.StartFromSink(in, o, mail, 0); err != nil {
				t.Errorf("operation %d of %d: %v", i, depth, err)
			} else {
				started++
			}
		}
	})
	if err := a.TryStartTo(&op, sink, 0); err != nil {
		t.Fatal(err)
	}
	<-over
	for range started {
		if got := <-mail; got.err != nil {
			t.Error(got.err)
		}
	}
}
