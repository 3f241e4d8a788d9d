package runtime

import (
	"context"
	"errors"
	"net/netip"
	stdruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Rule: Close frees everything even if its context has ended before the call. Close can be called
// again.
func TestCloseWithAnEndedContextClosesAll(t *testing.T) {
	a, _ := connected(t, Config{Reactors: 2})
	if _, err := a.rt.Listen(":0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.rt.Close(endedContext()); err != nil {
			t.Errorf("closing at the deadline: %v", err)
		}
	}
}

// Rule: Close frees everything when its context ends, even if the peer does not answer.
func TestCloseAtItsDeadlineWithASilentPeer(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, _ := connected(t, Config{Provider: p})
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	if _, err := a.SendBytes(testContext(t), []byte("x")); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := a.rt.Close(short); err != nil {
		t.Errorf("closing at the deadline: %v; objects %+v", err, a.rt.dev.Objects())
	}
}

// Rule: several goroutines may call Close at the same time. All calls wait for the end and return
// nil.
func TestConcurrentCloseIsOne(t *testing.T) {
	for range 10 {
		a, b := connected(t, Config{Reactors: 2})
		var wg sync.WaitGroup
		for range 3 {
			for _, rt := range []*Runtime{a.rt, b.rt} {
				wg.Go(func() {
					if err := rt.Close(testContext(t)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
}

// Rule: a receive on a closed connection returns the cause of the connection, even after the
// runtime was closed.
func TestReceivingAfterCloseSaysWhy(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, _ := connected(t, Config{NoCallerDriving: parked})
		if err := a.rt.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		_, err := a.RecvWait(testContext(t))
		mistake(t, "RecvWait", err, ErrConnClosed)
		f := a.Recv()
		<-f.Done()
		_, err = f.Await(testContext(t))
		mistake(t, "Recv", err, ErrConnClosed)
	}
}

// Rule: Conn.Done is closed when the connection accepts no more operations, whichever end has
// closed the connection.
func TestDoneSaysThatAConnectionEnds(t *testing.T) {
	a, b := connected(t, Config{})
	select {
	case <-a.Done():
		t.Fatal("an open connection is done")
	default:
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	<-b.Done()
	mistake(t, "closed", a.Err(), ErrConnClosed)
	mistake(t, "closed by the peer", b.Err(), ErrPeerClosed)
}

// Rule: if a goroutine holds the reactor's turn and does not return, Close of a connection or
// listener returns ErrReactorBusy. Then Close can be called again.
func TestCloseOfABusyReactorSaysSo(t *testing.T) {
	a, b := connected(t, Config{})
	ln := must.Get(a.rt.Listen(":0"))(t)
	gate, held := make(chan struct{}), make(chan struct{})
	go a.sh.r.Do(context.Background(), func() { close(held); <-gate })
	<-held
	var wg sync.WaitGroup
	for what, end := range map[string]func(context.Context) error{"connection": a.Close, "listener": ln.Close} {
		wg.Go(func() {
			if err := end(endedContext()); !errors.Is(err, ErrReactorBusy) {
				t.Errorf("closing the %s: %v, want ErrReactorBusy", what, err)
			}
		})
	}
	wg.Wait()
	close(gate)
	for _, end := range []func(context.Context) error{a.Close, ln.Close, b.Close} {
		if err := end(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

// Rule: soon after a connection was closed, its receive buffers larger than MaxPooled are unmapped,
// except the buffers of messages that are not released. After the runtime was closed, nothing is
// mapped.
func TestBigReceivesAreUnmapped(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 2, MessageSize: MaxPooled + 1}})
	ms := sendAndTake(t, a, b, 1)
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	b.rt.tidying.Wait()
	b.rt.mem.mu.Lock()
	mapped := b.rt.mem.bigs // MemoryStats is not used, because it unmaps buffers itself
	b.rt.mem.mu.Unlock()
	if mapped != 1 {
		t.Errorf("%d big buffers are mapped after the connection was closed, want that of the message", mapped)
	}
	release(t, ms...)
	if err := b.rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if _, bytes := mem.Live(); bytes > 64<<20 {
		t.Errorf("%d bytes are mapped", bytes)
	}
}

// Rule: if callers give up waiting for a message, their waits do not accumulate.
func TestGivenUpReceivesAreNotKept(t *testing.T) {
	a, b := connected(t, Config{})
	first := b.Recv() // gets no message yet, so Conn.match stops at this wait
	for range 5000 {
		if _, err := b.RecvWait(endedContext()); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	kept := 0
	if err := b.sh.r.Do(testContext(t), func() { b.match(); kept = len(b.recvWaiters) }); err != nil {
		t.Fatal(err)
	}
	if kept > 2*pruneFrom {
		t.Errorf("%d waits are kept, of 1", kept)
	}
	f, err := a.SendBytes(testContext(t), []byte("first"))
	done(t, f, err)
	m, err := first.Await(testContext(t))
	if err != nil || string(m.Data) != "first" {
		t.Fatalf("who waited got %q, %v", m.Data, err)
	}
	release(t, m)
}

// The following tests call Runtime.Close while other goroutines use the runtime.

// Rule: one Close is enough while other goroutines submit operations, even if its context has
// ended. From the beginning of Close the calls of these goroutines fail. Close waits until
// these calls have returned.
func TestOneCloseIsEnoughWhileOthersSubmit(t *testing.T) {
	const writers, before = 8, 20
	for round := range fewer(100) {
		a, b := connected(t, Config{Conn: Options{SendDepth: 2}})
		s, r := slicePair(t, a, b)
		var wrote atomic.Int64
		under := make(chan struct{})
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for {
					if _, err := a.Do(context.Background(), new(WriteOp(s, r))); err != nil {
						return
					}
					f, err := a.Batch().Start(context.Background(), new(WriteOp(s, r)))
					if err != nil {
						return
					}
					f.Discard()
					if wrote.Add(1) == before {
						close(under)
					}
				}
			})
		}
		<-under
		ctx := testContext(t)
		if round%2 == 0 {
			ctx = endedContext()
		}
		if err := a.rt.Close(ctx); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		wg.Wait()
		if err := b.rt.Close(testContext(t)); err != nil {
			t.Errorf("round %d: the other side: %v", round, err)
		}
	}
}

// slicePair returns 8 bytes of a's memory, and 8 bytes of b's memory that a may write.
func slicePair(t *testing.T, a, b *Conn) (Slice, Remote) {
	t.Helper()
	region := must.Get(b.rt.NewRegion(8, allAccess))(t)
	r := must.Get(region.Remote(0, 8))(t)
	mine := must.Get(a.rt.NewRegion(8, allAccess))(t)
	s := must.Get(mine.Slice(0, 8))(t)
	return s, r
}

// Rule: Close waits until a held message is released.
func TestCloseWaitsForAHeldMessage(t *testing.T) {
	a, b := connected(t, Config{})
	m := sendAndTake(t, a, b, 1)[0]
	closed := make(chan error, 1)
	go func() { closed <- b.rt.Close(testContext(t)) }()
	for !b.rt.mem.closing.Load() { // until Close has begun to close the memory
		stdruntime.Gosched()
	}
	// memory.Close sets the field closing under the mutex that MemoryStats locks. So when
	// MemoryStats returns, the first memory.Close has failed.
	b.rt.MemoryStats()
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Errorf("closing while a message is held for a moment: %v", err)
	}
}

// Rule: if the user does not release a message in time, Close returns ErrBusy and leaves the
// message unchanged. Close can be called again.
func TestCloseSaysThatAMessageIsHeld(t *testing.T) {
	a, b := connected(t, Config{grace: 20 * time.Millisecond})
	m := sendAndTake(t, a, b, 1)[0]
	text := string(m.Data)
	if err := b.rt.Close(testContext(t)); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing with a message held: %v, want ErrBusy", err)
	}
	if string(m.Data) != text {
		t.Errorf("the held message reads %q, it was %q", m.Data, text)
	}
	release(t, m)
	if err := b.rt.Close(testContext(t)); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// Rule: Close waits for calls that create objects (calls between rt.enter() and rt.leave()). After
// its context has ended, Close waits only Config.grace longer. A later Close continues.
func TestCloseWaitsForWhatIsBeingMade(t *testing.T) {
	rt := mustOpen(t, Config{grace: 20 * time.Millisecond})
	if err := rt.enter(); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(endedContext()); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing while something is being made: %v, want ErrBusy", err)
	}
	if err := rt.enter(); !errors.Is(err, ErrClosed) {
		t.Errorf("making something after Close has begun: %v, want ErrClosed", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- rt.Close(testContext(t)) }()
	rt.leave()
	if err := <-closed; err != nil {
		t.Errorf("closing when nothing is being made: %v", err)
	}
}

// Rule: while a reactor closes a CM identifier that is still on the event channel of another
// reactor, Close waits for the identifier.
func TestCloseWaitsForIdentifiersOfOtherReactors(t *testing.T) {
	rt := mustOpen(t, Config{Reactors: 2})
	first, other := rt.shards[0], rt.shards[1]
	id := must.Get(first.cm.CreateID(verbs.PSTCP, 0))(t)
	slow := newSlowID(id)
	if err := other.r.Do(testContext(t), func() { other.closeID(slow, nil) }); err != nil {
		t.Fatal(err)
	}
	<-slow.begun
	closed := make(chan error, 1)
	go func() { closed <- rt.Close(testContext(t)) }()
	for ending := false; !ending; {
		select {
		case err := <-closed:
			t.Fatalf("Close has not waited: %v", err)
		default:
		}
		if err := other.r.Do(testContext(t), func() { ending = other.ending }); err != nil {
			t.Fatal(err)
		}
	}
	close(slow.letGo)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// Rule: if a call of Dial, Accept or Resolve is in progress when Close begins, this call returns
// ErrClosed. A Join in progress returns ErrClosed or succeeds. Later calls that create something
// return ErrClosed, too.
func TestCallsDuringCloseAnswerErrClosed(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	rt := mustOpen(t, Config{Provider: p, Device: "soft0"})
	ln := must.Get(rt.Listen(":0"))(t)
	pc := mustListenPacket(t, rt, Options{})
	link.SetAll(fabric.Link{Down: true}) // no call gets an answer
	ctx, far := testContext(t), "127.0.0.2:7"
	calls := map[string]func() error{
		"Dial":    func() error { _, err := rt.Dial(ctx, far); return err },
		"Accept":  func() error { _, err := ln.Accept(ctx); return err },
		"Resolve": func() error { _, err := pc.Resolve(ctx, far); return err },
		"Join":    func() error { _, err := pc.Join(ctx, netip.MustParseAddr("239.1.2.3")); return err },
	}
	got := map[string]chan error{}
	for name, call := range calls {
		ch := make(chan error, 1)
		got[name] = ch
		go func() { ch <- call() }()
	}
	for live := 0; live < 1; { // until Dial has begun a connection
		rt.mu.Lock()
		live = len(rt.live)
		rt.mu.Unlock()
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for name, ch := range got {
		if err := <-ch; !errors.Is(err, ErrClosed) && !(name == "Join" && err == nil) {
			t.Errorf("%s under way: %v, want ErrClosed", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"Listen":        func() error { _, err := rt.Listen(":0"); return err },
		"ListenPacket":  func() error { _, err := rt.ListenPacket(":0", Options{}); return err },
		"NewSharedRecv": func() error { _, err := rt.NewSharedRecv(1, 1); return err },
		"Prepare":       func() error { _, err := rt.Prepare(PlainOptions{}); return err },
		"PrepareDial":   func() error { _, err := rt.PrepareDial(ctx, first.at("1"), Options{}); return err },
		"NewRegion":     func() error { _, err := rt.NewRegion(8, allAccess); return err },
		"Alloc":         func() error { _, err := rt.Alloc(8); return err },
	} {
		calls[name] = call
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s afterwards: %v, want ErrClosed", name, err)
		}
	}
}

// Rule: if the context of Close ends while a callback is running, Close returns the context's
// error.
func TestCloseTellsItsContextsError(t *testing.T) {
	a, _ := connected(t, Config{grace: 20 * time.Millisecond})
	running, leave := make(chan struct{}), make(chan struct{})
	f := must.Get(a.SendBytes(testContext(t), []byte("x")))(t)
	f.Then(func(Result, error) { close(running); <-leave })
	<-running
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := a.rt.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing while a callback runs: %v, want %v", err, context.DeadlineExceeded)
	}
	close(leave)
	if err := a.rt.Close(testContext(t)); err != nil {
		t.Errorf("closing again: %v", err)
	}
}
