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

// runner is a Sink that executes n WRITEs. Each WRITE is ops[0] or ops[1]. The function run starts the
// first WRITE. Whenever a WRITE completes, Complete starts up to three others.
type runner struct {
	c     *Conn
	ops   [2]Op
	left  int           // the number of WRITEs not started yet
	out   int           // the number of WRITEs started and not completed
	taken int           // the number of WRITEs started by Complete
	err   error         // the errors of all WRITEs, joined
	over  chan struct{} // gets a value when all WRITEs have completed, or a WRITE has failed
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
		t.Fatalf("starting or executing %d WRITEs: %v", n, r.err)
	}
}

// Rule: if a sink starts operations by StartFromSink, each of them completes. When the last operation
// has completed, no lease on its memory is left, not even a lease that was cached for sinks.
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
			t.Errorf("Complete started %d WRITEs, want %d", r.taken, n-1)
		}
		for k := range from {
			if err := from[k].Close(); err != nil {
				t.Errorf("closing region %d after %d WRITEs: %v", k, n, err)
			}
		}
	}
}

// Rule: if the memory was released, StartFromSink returns ErrReleased, even while leases on that memory
// are cached. If the SinkContext is zero, or the operation is no WRITE and no READ, StartFromSink does
// the same as TryStartTo.
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
				t.Errorf("%s returned %v, want %v", what, err, want)
			}
		}
		expect("the operation of this sink", err, nil)
		for range 2 { // the second call takes a lease for its WRITE, and another one that stays in the cache
			expect("StartFromSink of a WRITE", a.StartFromSink(in, &op, mail, 1), nil)
		}
		expect("Release of the buffer", bufs[0].Release(), nil)
		expect("StartFromSink with a released buffer", a.StartFromSink(in, &op, mail, 2), ErrReleased)
		expect("StartFromSink with the other buffer", a.StartFromSink(in, &other, mail, 1), nil)
		expect("StartFromSink of an atomic", a.StartFromSink(in, &add, mail, 1), nil)
		expect("StartFromSink of a WRITE longer than the remote memory", a.StartFromSink(in, &long, mail, 2), ErrRemoteRange)
		expect("StartFromSink without a sink", a.StartFromSink(in, &other, nil, 2), reactor.ErrRequest)
		if b.q.InSink(in) {
			t.Error("InSink is true for a queue of another runtime, want false")
		}
	})
	if err := a.TryStartTo(&op, sink, 0); err != nil {
		t.Fatal(err)
	}
	<-over
	if err := a.StartFromSink(SinkContext{}, &other, mail, 1); err != nil {
		t.Errorf("StartFromSink with the zero SinkContext returned %v, want nil", err)
	}
	for range 5 { // the operations that were started
		if got := <-mail; got.err != nil || got.r.Tag != 1 {
			t.Errorf("an operation ended with tag %d, error %v; want tag 1 and no error", got.r.Tag, got.err)
		}
	}
	for i := range bufs {
		if err := bufs[i].Release(); (i == 0) != errors.Is(err, ErrReleased) {
			t.Errorf("releasing buffer %d returned %v, want ErrReleased only for buffer 0, which was released before", i, err)
		}
	}
}

// Rule: if StartFromSink fails, it leaves no lease on the operation's memory, even if the sink calls
// StartFromSink several times. So the region can be closed as soon as StartFromSink has returned the error.
func TestStartInThatFailsLeavesNothingInFlight(t *testing.T) {
	const depth = 2
	a, b := connected(t, Config{Conn: Options{SendDepth: depth}})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	remote := must.Get(to.Remote(0, 64))(t)
	from, other := must.Get(a.rt.NewRegion(64, 0))(t), must.Get(a.rt.NewRegion(64, 0))(t)
	defer mustClose(t, other, to)
	op, full := WriteOp(must.Get(from.Slice(0, 64))(t), remote), WriteOp(must.Get(other.Slice(0, 64))(t), remote)
	mail, failed := make(mailSink, depth), make(chan struct{})
	closed := make(chan error)
	sink := turnSink(func(in SinkContext, _ Result, err error) {
		for range depth {
			if err := a.StartFromSink(in, &full, mail, 0); err != nil {
				t.Errorf("StartFromSink with a free slot returned %v, want nil", err)
			}
		}
		for range 2 { // the first call must not leave a cached lease for the second call
			if err := a.StartFromSink(in, &op, mail, 0); !errors.Is(err, reactor.ErrQueueFull) {
				t.Errorf("StartFromSink with %d outstanding operations and SendDepth %d returned %v, want ErrQueueFull", depth, depth, err)
			}
		}
		close(failed)
		if err := <-closed; err != nil {
			t.Errorf("closing the region after StartFromSink failed: %v", err)
		}
	})
	if err := a.TryStartTo(&op, sink, 0); err != nil {
		t.Fatal(err)
	}
	<-failed
	closed <- from.Close()
	for range depth {
		if got := <-mail; got.err != nil {
			t.Errorf("an operation that the sink started ended with %v, want no error", got.err)
		}
	}
}

// Rule: if the SinkContext belongs to an earlier pass, StartFromSink does the same as TryStartTo, even
// while a later pass calls sinks.
func TestAnOldTurnStartsAsAnybody(t *testing.T) {
	a, b := connected(t, Config{})
	to := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	remote := must.Get(to.Remote(0, 64))(t)
	from := must.Get(a.rt.NewRegion(64, 0))(t)
	defer mustClose(t, from, to)
	op := WriteOp(must.Get(from.Slice(0, 64))(t), remote)
	contexts, mail := make(chan SinkContext, 1), make(mailSink, 1)
	if err := a.TryStartTo(&op, turnSink(func(in SinkContext, _ Result, _ error) { contexts <- in }), 0); err != nil {
		t.Fatal(err)
	}
	old := <-contexts
	inside, outside := make(chan SinkContext), make(chan struct{})
	if err := a.StartTo(t.Context(), &op, turnSink(func(in SinkContext, _ Result, _ error) { inside <- in; <-outside }), 0); err != nil {
		t.Fatal(err)
	}
	now := <-inside // the second sink runs until outside is closed
	if a.q.InSink(old) || !a.q.InSink(now) {
		t.Errorf("InSink is %v for the old SinkContext, want false; and %v for the new SinkContext, want true", a.q.InSink(old), a.q.InSink(now))
	}
	if err := a.StartFromSink(old, &op, mail, 7); err != nil {
		t.Errorf("StartFromSink with the old SinkContext returned %v, want nil", err)
	}
	close(outside)
	if got := <-mail; got.err != nil || got.r.Tag != 7 {
		t.Errorf("the operation started with the old SinkContext ended with tag %d, error %v; want tag 7 and no error", got.r.Tag, got.err)
	}
}

// Rule: if StartFromSink calls TryStartTo for an operation, TryStartTo can use the slots that are cached
// for sinks.
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
		for i, o := range []*Op{&op, &op, &add, &add} { // the second call takes a slot for its operation, and another one that stays in the cache
			if err := a.StartFromSink(in, o, mail, 0); err != nil {
				t.Errorf("starting operation %d with SendDepth %d: %v", i, depth, err)
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
			t.Errorf("an operation that the sink started ended with %v, want no error", got.err)
		}
	}
}
