package runtime

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: when Cancel returns, every operation and receive of the connection has completed exactly
// once, and the user owns their memory again. Messages that arrived before Cancel can still be
// received. A later Close succeeds.
func TestCancelBringsEverythingHome(t *testing.T) { onBeds(t, cancelBringsEverythingHome) }

func cancelBringsEverythingHome(t *testing.T, d bed) {
	for _, raw := range []bool{false, true} {
		a, b := d.connected(t, Config{Conn: Options{Raw: raw, RecvCredits: 16, SendDepth: 16}})
		ctx := testContext(t)
		if !raw {
			f, err := b.SendBytes(ctx, []byte("before"))
			done(t, f, err)
			for !arrivedAt(t, a) {
				goruntime.Gosched()
			}
		}
		r, err := a.rt.NewRegion(64, verbs.AccessLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		local := must.Get(r.Slice(0, 64))(t)
		far := must.Get(b.rt.NewRegion(64, allAccess))(t)
		remote := must.Get(far.Remote(0, 64))(t)
		var under []Future
		for i := range 16 {
			var f Future
			switch {
			case raw && i%2 == 0:
				f, err = a.PostRecv(local)
			case i%3 == 0:
				f, err = a.Read(ctx, local, remote)
			default:
				// A Batch does not wake the loop, so this request may still be unposted when Cancel is called.
				f, err = a.Batch().Start(ctx, new(WriteOp(local, remote)))
			}
			if err != nil {
				t.Fatal(err)
			}
			under = append(under, f)
		}
		from := time.Now()
		for range 2 {
			if err := a.Cancel(ctx); err != nil {
				t.Fatalf("raw %v: Cancel: %v, want no error", raw, err)
			}
		}
		if took := time.Since(from); took > flushBound {
			t.Errorf("two calls of Cancel took %v, want at most %v, the time in which the device must flush the operations", took, flushBound)
		}
		for i, f := range under {
			_, err, ok := f.Poll()
			if !ok || err != nil && !errors.Is(err, ErrCancelled) {
				t.Errorf("raw %v: after Cancel, Poll of operation %d returned completed=%t and the error %v; want completed=true, and no error or %v", raw, i, ok, err, ErrCancelled)
			}
			if _, again, _ := f.Poll(); !errors.Is(again, futures.ErrConsumed) {
				t.Errorf("raw %v: the second Poll of operation %d returned %v, want %v", raw, i, again, futures.ErrConsumed)
			}
		}
		if err := r.Close(); err != nil {
			t.Errorf("raw %v: closing the region after Cancel: %v, want no error", raw, err)
		}
		if err := a.Err(); !errors.Is(err, ErrCancelled) {
			t.Errorf("raw %v: Err returns %v after Cancel, want %v", raw, err, ErrCancelled)
		}
		if _, err := a.Do(ctx, new(WriteOp(Slice{}, remote))); !errors.Is(err, ErrCancelled) {
			t.Errorf("raw %v: a WRITE after Cancel: %v, want %v", raw, err, ErrCancelled)
		}
		if !raw {
			m, err := a.RecvWait(ctx)
			if err != nil || string(m.Data) != "before" {
				t.Errorf("receiving the message that arrived before Cancel: %q, %v; want \"before\"", m.Data, err)
			} else if err := m.Release(); err != nil {
				t.Errorf("releasing the message: %v", err)
			}
			if _, err := a.RecvWait(ctx); !errors.Is(err, ErrCancelled) {
				t.Errorf("receiving after the last message: %v, want %v", err, ErrCancelled)
			}
		}
		select {
		case <-b.Done():
		case <-ctx.Done():
			t.Error("the peer's end of the connection is still open, want it to end after Cancel")
		}
		for _, c := range []*Conn{a, b} {
			if err := c.Close(ctx); err != nil {
				t.Errorf("Close after Cancel: %v, want no error", err)
			}
			if err := c.Cancel(ctx); err != nil {
				t.Errorf("Cancel of a closed connection: %v, want no error", err)
			}
		}
	}
}

// arrivedAt reports whether c has a message that the program has not received yet.
func arrivedAt(t *testing.T, c *Conn) (yes bool) {
	if err := c.sh.r.Do(testContext(t), func() { yes = c.hasMessages() }); err != nil {
		t.Fatal(err)
	}
	return yes
}

// Rule: when Cancel returns, receives that were submitted but not posted have ended, too. (Cancel
// waits with Queue.Idle. If Queue.Idle ignored unposted receives, their region would stay in use.)
func TestCancelFindsReceivesThatAreNotPosted(t *testing.T) {
	a, _ := connected(t, Config{Conn: Options{Raw: true}})
	r, err := a.rt.NewRegion(64, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	local := must.Get(r.Slice(0, 64))(t)
	var f Future
	home := make(chan struct{})
	if derr := a.sh.r.Do(testContext(t), func() { // no pass can post the receive while this function runs
		if f, err = a.PostRecv(local); err != nil {
			return
		}
		a.setCause(ErrCancelled)
		a.flushAll(home)
		if isClosed(home) {
			t.Errorf("flushAll closed its channel while %d operations had a lease on the region, want it closed after they have ended", local.lease.word.Load()&leaseCountMask)
		}
	}); derr != nil || err != nil {
		t.Fatalf("running PostRecv with the turn: Do returned %v and PostRecv %v, want no error from either", derr, err)
	}
	<-home
	if _, err, ok := f.Poll(); !ok || !errors.Is(err, ErrCancelled) {
		t.Errorf("Poll of the receive returned ended=%t and the error %v, want ended=true and %v", ok, err, ErrCancelled)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region: %v, want no error", err)
	}
}

// Rule: if the peer's response to a READ arrives after the READ was cancelled, the device does not
// write the response to the memory of the READ, because the memory may have another owner by then.
func TestALateAnswerWritesNothing(t *testing.T) {
	for _, when := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		p := newLostPeer(t, Options{})
		const late = 20 * time.Millisecond
		p.w.fab.SetLink(p.w.nodes[1].gid, p.w.nodes[0].gid, fabric.Link{Delay: late})
		p.start("read")
		p.pass(when)
		home := p.a.cancel()
		for n := 0; !isClosed(home); n++ {
			if n == 1000 {
				t.Fatal("the cancellation has not ended after one second of virtual time")
			}
			p.pass(time.Millisecond)
		}
		mine := bytes.Repeat([]byte{0x11}, p.local.Len())
		own := p.local.Bytes() // the response carries zeros, so it differs from mine
		copy(own, mine)
		p.pass(10 * late)
		if !bytes.Equal(own, mine) {
			t.Errorf("the READ was cancelled %v after its start: the late response changed the memory, want it unchanged", when)
		}
		if o := p.ops[0]; o.ended == 0 || !errors.Is(o.err, ErrCancelled) {
			t.Errorf("the READ ended at %v (0s: it has not ended) with the error %v, want %v", o.ended, o.err, ErrCancelled)
		}
		if n := p.local.lease.word.Load() & leaseCountMask; n != 0 {
			t.Errorf("%d operations have a lease on the memory of the cancelled READ, want 0", n)
		}
	}
}

// Rule: when the context of a waiting call ends, the call returns at once. The lease (the operation's
// hold on its memory) stays until the operation ends, because the device may use the memory until
// then.
func TestAnEndedWaitKeepsTheLease(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p, Conn: Options{SendDepth: 4, RecvCredits: 4}})
	far := must.Get(b.rt.NewRegion(64, allAccess))(t)
	remote := must.Get(far.Remote(0, 64))(t)
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	forms := map[string]func(ctx context.Context, local Slice) error{
		"Do of a WRITE": func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(WriteOp(l, remote))); return err },
		"Do of a READ":  func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(ReadOp(l, remote))); return err },
		"Do of a SEND":  func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(SendOp(l))); return err },
		"Await": func(ctx context.Context, l Slice) error {
			f, err := a.Write(testContext(t), l, remote)
			if err == nil {
				if _, err = f.Await(ctx); f.Valid() {
					f.Discard()
				}
			}
			return err
		},
	}
	var regions []*Region
	for name, wait := range forms {
		r := must.Get(a.rt.NewRegion(64, verbs.AccessLocalWrite))(t)
		regions = append(regions, r)
		local := must.Get(r.Slice(0, 64))(t)
		from := time.Now()
		if err := wait(givenUp, local); !errors.Is(err, errGivenUp) {
			t.Errorf("%s: %v, want %v", name, err, errGivenUp)
		}
		// If the call ignored its context, it would wait until the operation ends. Because the link is
		// down, the operation ends when the device's retries are used up: after 1.07 s at the earliest.
		if took := time.Since(from); took > time.Second {
			t.Errorf("%s: the call returned after %v although its context had ended, want less than 1s", name, took)
		}
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: closing the region of the outstanding operation: %v, want %v", name, err, verbs.ErrBusy)
		}
	}
	// The send queue is full now, so the next call waits for a slot. This call, too, returns when its
	// context ends, and it leaves no lease.
	buf := bufferOf(t, a.rt, make([]byte, 64))
	before := buf.s.lease.word.Load()
	if _, err := a.Write(givenUp, buf.Slice(), remote); !errors.Is(err, errGivenUp) {
		t.Errorf("a Write that waits for a slot: %v, want %v", err, errGivenUp)
	}
	if after := buf.s.lease.word.Load(); after != before {
		t.Errorf("after a Write that was not submitted, the word of the buffer's lease is %x, want %x as before the Write", after, before)
	}
	if err := a.Cancel(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range regions {
		if err := r.Close(); err != nil {
			t.Errorf("closing a region after Cancel: %v", err)
		}
	}
}

// Rule: if other goroutines start operations, close the connection, or abort one of its ends while
// Cancel runs, every operation still ends exactly once, and all memory is released.
func TestStressCancel(t *testing.T) { onPlainBeds(t, stressCancel) }

func stressCancel(t *testing.T, d bed) {
	seed := fromEnv(t, "VERBENA_CANCEL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("VERBENA_CANCEL_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	rounds := int(fromEnv(t, "VERBENA_STRESS_OPS", 0)/100_000) + 30
	server, client := d.open(t, Config{Reactors: 2}, 1), d.open(t, Config{Reactors: 2}, 0)
	ln := must.Get(server.Listen(":0"))(t)
	far := must.Get(server.NewRegion(4096, allAccess))(t)
	remote := must.Get(far.Remote(0, 4096))(t)
	for round := 0; round < rounds && !t.Failed(); round++ {
		cancelRound(t, client, ln, remote, rnd)
	}
}

func cancelRound(t *testing.T, client *Runtime, ln *Listener, remote Remote, rnd *rand.Rand) {
	ctx := testContext(t)
	seat := must.Get(ln.AcceptAsync())(t)
	a := must.Get(client.DialOptions(ctx, ln.Addr().String(), Options{SendDepth: 1 + rnd.IntN(8)}))(t)
	b := must.Get(seat.Await(ctx))(t)
	r := must.Get(client.NewRegion(4096, verbs.AccessLocalWrite))(t)
	local := must.Get(r.Slice(0, 4096))(t)
	var ended, started atomic.Int64
	var posters, enders sync.WaitGroup
	sink := sinkFunc(func(Result, error) { ended.Add(1) })
	for i := range 3 {
		posters.Go(func() {
			for {
				var err error
				switch i {
				case 0:
					op := ReadOp(local, remote)
					err = a.StartTo(ctx, &op, sink, 0)
				case 1:
					_, err = a.Do(ctx, new(WriteOp(local, remote)))
				default:
					var f Future
					if f, err = a.Batch().Start(ctx, new(WriteOp(local, remote))); err == nil {
						_, err = f.Await(ctx)
					}
				}
				if err != nil {
					if errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("goroutine %d: an operation has not ended after %v", i, patience())
					}
					return
				}
				if i == 0 {
					started.Add(1)
				}
			}
		})
	}
	for until := int64(rnd.IntN(60)); ended.Load() < until && a.Err() == nil && ctx.Err() == nil; {
		goruntime.Gosched()
	}
	cancel := func() {
		if err := a.Cancel(ctx); err != nil {
			t.Errorf("Cancel: %v, want no error", err)
		}
	}
	enders.Go(cancel)
	if rnd.IntN(2) == 0 {
		enders.Go(cancel)
	}
	switch rnd.IntN(4) {
	case 0:
		enders.Go(func() {
			if err := a.Close(ctx); err != nil {
				t.Errorf("Close while Cancel runs: %v, want no error", err)
			}
		})
	case 1:
		enders.Go(b.Abort)
	case 2:
		enders.Go(a.Abort)
	}
	enders.Wait()
	posters.Wait()
	// An operation that was being started when Cancel was called may not have ended when Cancel
	// returned. Now no goroutine starts operations, so this call of Cancel waits for every operation.
	cancel()
	for ended.Load() < started.Load() && ctx.Err() == nil {
		goruntime.Gosched()
	}
	if n, want := ended.Load(), started.Load(); n != want {
		t.Errorf("the sink was called %d times for %d operations, want one call for each", n, want)
	}
	if n := local.lease.word.Load() & leaseCountMask; n != 0 {
		t.Errorf("all operations have ended, but %d have a lease on the memory, want 0", n)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region: %v, want no error", err)
	}
	for _, c := range []*Conn{a, b} {
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close after Cancel: %v, want no error", err)
		}
	}
}

// sinkFunc is a function that serves as a Sink.
type sinkFunc func(Result, error)

func (f sinkFunc) Complete(_ SinkContext, r Result, err error) { f(r, err) }
