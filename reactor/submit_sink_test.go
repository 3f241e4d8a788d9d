package reactor_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// turned is a function with a SinkContext argument that serves as a sink.
type turned func(reactor.SinkContext, reactor.Completion, error)

func (fn turned) Complete(t reactor.SinkContext, c reactor.Completion, err error) { fn(t, c, err) }

// followed returns a Transfer with the given tag and sink: a WRITE of 8 bytes to peer.
func (e *end) followed(peer *end, tag uint64, sink reactor.Sink) *reactor.Transfer {
	addr, key := peer.remote(0)
	_, sge := e.bytes(0, 8)
	return &reactor.Transfer{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key, Local: sge, Tag: tag, Sink: sink}
}

// stocked is a SinkCache for items without content. It counts the items that sinks have taken, those
// that Release has given back, and those that are not given back yet (out).
type stocked struct{ taken, back, out int }

func (s *stocked) take(r *reactor.Reactor) {
	s.taken, s.out = s.taken+1, s.out+1
	r.SetSinkCache(s)
}

func (s *stocked) Release() { s.back, s.out = s.back+s.out, 0 }

// follower submits WRITEs on two queues. Its sinks submit further WRITEs on either queue, by
// PostFromSink or Transfer.
type follower struct {
	t       *testing.T
	rnd     *rand.Rand
	peer    *end
	from    [2]*end
	depth   int
	left    int       // number of WRITEs that are still to be submitted
	started [2]uint64 // by queue: the tag of the next WRITE to be submitted
	ended   [2]uint64 // by queue: the tag of the next WRITE to end
	follows int       // number of calls of PostFromSink
	stocks  [2]stocked
	stale   reactor.SinkContext // of the last sink that was called
}

func (f *follower) out(k int) int { return int(f.started[k] - f.ended[k]) }

// start submits a WRITE on queue k: by PostFromSink if follow is true, otherwise by
// Transfer. It returns false if there is no free slot.
func (f *follower) start(k int, t reactor.SinkContext, follow bool) bool {
	e := f.from[k]
	sink := turned(func(t reactor.SinkContext, c reactor.Completion, err error) { f.complete(k, t, c, err) })
	tr := e.followed(f.peer, f.started[k], sink)
	var err error
	if follow {
		if !e.q.InSink(t) {
			f.t.Fatal("InSink returned false for the SinkContext of the running sink, want true")
		}
		f.stocks[f.rnd.IntN(2)].take(e.r)
		f.follows++
		err = e.q.PostFromSink(t, tr)
	} else {
		_, err = e.q.Transfer(bounded(f.t), tr, reactor.NonBlock)
	}
	if errors.Is(err, reactor.ErrQueueFull) {
		// In a sink, Transfer may return ErrQueueFull before all slots are used. The reason is that
		// cached slots are not free until all sinks of the pass have been called.
		if f.out(k) < f.depth && (follow || t == reactor.SinkContext{}) {
			f.t.Fatalf("queue %d returned ErrQueueFull with %d of its %d slots in use", k, f.out(k), f.depth)
		}
		return false
	}
	must.Do(f.t, err)
	f.started[k]++
	f.left--
	return true
}

func (f *follower) complete(k int, t reactor.SinkContext, c reactor.Completion, err error) {
	must.Do(f.t, err)
	if c.Tag != f.ended[k] {
		f.t.Fatalf("request %d of queue %d ended, want request %d first", c.Tag, k, f.ended[k])
	}
	f.ended[k]++
	f.stale = t
	for range f.rnd.IntN(4) {
		if f.left > 0 {
			f.start(f.rnd.IntN(2), t, f.rnd.IntN(3) > 0)
		}
	}
}

// Rule: the requests of a goroutine end in the order of their submission, even if some are
// submitted by PostFromSink and others by Transfer. Each request ends once. After the results of a
// pass are delivered, the sink cache is empty.
func TestWhatSinksStartKeepsItsOrder(t *testing.T) {
	onlySoft(t, "the test steps the reactor, but a device completes at any time")
	for _, depth := range []int{1, 3, 40, 300} {
		seed := rand.Uint64()
		f := &follower{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), depth: depth, left: 20_000}
		cfg := reactor.Config{Stepped: true}
		a, b := pair(t, cfg, reactor.QueueConfig{SendDepth: depth})
		more, peer := a.another(t, reactor.QueueConfig{SendDepth: depth}), b.another(t, reactor.QueueConfig{})
		more.ready(t, peer)
		peer.ready(t, more)
		f.peer, f.from = b, [2]*end{a, more}
		for f.left > 0 {
			for k := range 2 { // fill a random part of the queue
				for f.rnd.IntN(depth+1) > 0 && f.left > 0 && f.start(k, reactor.SinkContext{}, false) {
				}
			}
			a.r.Step()
			if a.q.InSink(f.stale) || more.q.InSink(f.stale) {
				t.Fatal("InSink returned true for a SinkContext when all sinks of its pass had been called, want false")
			}
			if f.stocks[0].out+f.stocks[1].out != 0 {
				t.Fatal("items of a sink cache were not given back when all sinks had been called, want all given back")
			}
		}
		for a.r.Step() {
		}
		for k := range 2 {
			if f.out(k) != 0 {
				t.Errorf("depth %d, seed %d: %d requests of queue %d have not ended, want 0", depth, seed, f.out(k), k)
			}
			if s := f.stocks[k]; s.taken != s.back || s.taken < f.follows/4 {
				t.Errorf("depth %d, seed %d, sink cache %d: %d items were taken and %d given back in %d calls of PostFromSink; want equal numbers, and at least a quarter of the number of calls", depth, seed, k, s.taken, s.back, f.follows)
			}
		}
		peer.closeQueue(t)
		more.closeQueue(t)
		a.close(t)
		b.close(t)
	}
}

// Rule: InSink returns false for a zero SinkContext, and for a SinkContext of another reactor.
// PostFromSink returns an error for a request without a sink, and for a request on a failed queue.
func TestATurnIsForItsSinksOnly(t *testing.T) {
	onlySoft(t, "the test steps the reactor, but a device completes at any time")
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	if a.q.InSink((reactor.SinkContext{})) {
		t.Error("InSink returned true for the zero SinkContext, want false")
	}
	called := false
	must.Do(t, second(a.q.Transfer(bounded(t), a.followed(b, 0, turned(func(in reactor.SinkContext, _ reactor.Completion, err error) {
		called = true
		must.Do(t, err)
		if b.q.InSink(in) {
			t.Error("InSink returned true for the SinkContext of another reactor, want false")
		}
		if err := a.q.PostFromSink(in, a.followed(b, 0, nil)); !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("PostFromSink without a sink returned %v, want ErrRequest", err)
		}
		a.q.Fail(errKept)
		if err := a.q.PostFromSink(in, a.followed(b, 0, tally(nil))); !errors.Is(err, errKept) {
			t.Errorf("PostFromSink on a failed queue returned %v, want the cause of the failure", err)
		}
	})), reactor.NonBlock)))
	for !called {
		a.r.Step()
	}
}

// second returns the error of a call with two results.
func second[T any](_ T, err error) error { return err }

// Rule: a goroutine that waits for a slot gets one, even if sinks cache slots. All requests of
// sinks and submitters end.
func TestSinksAndSubmittersShareTheRoom(t *testing.T) {
	const depth, submitters = 4, 3
	each, most := fewer(3000), fewer(5000)
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	followed, ended := 0, 0 // owned by the holder
	var sink turned
	sink = func(in reactor.SinkContext, _ reactor.Completion, err error) {
		try(t, err)
		ended++
		for range 2 {
			if followed < most && a.q.PostFromSink(in, a.followed(b, 1, sink)) == nil {
				followed++
			}
		}
	}
	var all sync.WaitGroup
	for range submitters {
		all.Go(func() {
			for range each {
				try(t, second(a.q.Transfer(ctx, a.followed(b, 0, sink), reactor.Block)))
			}
		})
	}
	all.Wait()
	for over := false; !over; {
		idle := make(chan struct{})
		a.do(t, func() { a.q.Idle(func() { close(idle) }) })
		comes(t, "the queue to become idle", idle)
		a.do(t, func() {
			// A sink may have posted a request after the queue had become idle.
			all := submitters*each + followed
			if over = ended == all; ended > all || ctx.Err() != nil || over && followed == 0 {
				t.Errorf("%d requests ended, want the %d of the submitters and the %d of the sinks, which must be more than 0", ended, submitters*each, followed)
			}
		})
	}
}

// Rule: a request of a sink is posted after all earlier requests of its queue, even if one pass
// does not post all of the earlier requests.
func TestWhatASinkStartsGoesBehindWhatIsHeldBack(t *testing.T) {
	onlySoft(t, "the test steps the reactor, but a device completes at any time")
	const depth = partRequests + 3
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: depth})
	defer b.close(t)
	defer a.close(t)
	var ended []uint64
	var sink turned
	sink = func(in reactor.SinkContext, c reactor.Completion, err error) {
		must.Do(t, err)
		if c.Tag == 0 {
			for k := range uint64(2) {
				must.Do(t, a.q.PostFromSink(in, a.followed(b, depth+k, sink)))
			}
		}
		ended = append(ended, c.Tag)
	}
	for tag := range uint64(depth) {
		must.Do(t, second(a.q.Transfer(bounded(t), a.followed(b, tag, sink), reactor.NonBlock)))
	}
	for a.r.Step() {
	}
	if len(ended) != depth+2 || !slices.IsSorted(ended) {
		t.Errorf("%d requests ended, want %d in the order of submission: %v", len(ended), depth+2, ended)
	}
}

// Rule: a sink may post requests on a queue and then release the queue. The requests end with the
// cause given to Release, and the queue is reclaimed. The sink cache is released before the sinks
// of these requests are called.
func TestASinkReleasesWhatItStarted(t *testing.T) {
	onlySoft(t, "the test steps the reactor, but a device completes at any time")
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: 8})
	defer b.close(t)
	var stock stocked
	ended := 0
	refused := turned(func(_ reactor.SinkContext, _ reactor.Completion, err error) {
		ended++
		if !errors.Is(err, errOver) || stock.out != 0 {
			t.Errorf("a request ended with %v while sinks had %d items of the cache; want %v and 0", err, stock.out, errOver)
		}
	})
	must.Do(t, second(a.q.Transfer(bounded(t), a.followed(b, 0, turned(func(in reactor.SinkContext, _ reactor.Completion, err error) {
		must.Do(t, err)
		for range 3 {
			stock.take(a.r)
			must.Do(t, a.q.PostFromSink(in, a.followed(b, 0, refused)))
		}
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(errOver))
		if a.q.InSink(in) {
			t.Error("InSink returned true after the sink had called Release, want false")
		}
	})), reactor.NonBlock)))
	for a.r.Step() {
	}
	if ended != 3 || stock.taken != stock.back {
		t.Errorf("%d requests ended, and %d of %d items of the cache were given back; want 3 and all", ended, stock.back, stock.taken)
	}
	a.closeRest(t)
}

// Rule: Queue.Notify calls its sink with a zero Completion. This holds even if the entry of
// Reactor.outcomes for this call has held the completion of an earlier operation.
func TestNotifyPassesNoCompletion(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	got := make(chan reactor.Completion, 2)
	sink := turned(func(_ reactor.SinkContext, c reactor.Completion, _ error) { got <- c })
	for range 2 { // the WRITE and Notify both use the first entry of Reactor.outcomes
		must.Get(a.q.Transfer(bounded(t), a.followed(b, 7, sink), reactor.Block))(t)
		if c := <-got; c.Tag != 7 {
			t.Errorf("the WRITE ended with %+v, want tag 7", c)
		}
		must.Do(t, a.r.Do(bounded(t), func() { a.q.Notify(sink) }))
		if c := <-got; c != (reactor.Completion{}) {
			t.Errorf("Notify called the sink with %+v, want a zero Completion", c)
		}
	}
	a.close(t)
	b.close(t)
}
