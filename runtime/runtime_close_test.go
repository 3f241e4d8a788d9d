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

// endedContext returns a context that is canceled.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Rule: if the context of Close has ended before the call, Close still frees everything and returns nil.
// A second Close returns nil, too.
func TestCloseWithAnEndedContextClosesAll(t *testing.T) {
	a, _ := connected(t, Config{Reactors: 2})
	if _, err := a.rt.Listen(":0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.rt.Close(endedContext()); err != nil {
			t.Errorf("Close with a context that has ended returned %v, want nil", err)
		}
	}
}

// Rule: if the peer does not answer, Close frees everything when its context ends.
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
		t.Errorf("Close returned %v, want nil; the device has the objects %+v", err, a.rt.dev.Objects())
	}
}

// Rule: if several goroutines call Close at the same time, each call waits until the runtime is closed, and
// returns nil.
func TestConcurrentCloseIsOne(t *testing.T) {
	for range 10 {
		a, b := connected(t, Config{Reactors: 2})
		var wg sync.WaitGroup
		for range 3 {
			for _, rt := range []*Runtime{a.rt, b.rt} {
				wg.Go(func() {
					if err := rt.Close(testContext(t)); err != nil {
						t.Errorf("a concurrent Close returned %v, want nil", err)
					}
				})
			}
		}
		wg.Wait()
	}
}

// Rule: if a receive is started on a connection of a closed runtime, it ends with the connection's cause.
func TestReceivingAfterCloseSaysWhy(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, _ := connected(t, Config{NoCallerDriving: parked})
		if err := a.rt.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		_, err := a.RecvWait(testContext(t))
		mistake(t, "RecvWait after Runtime.Close", err, ErrConnClosed)
		f := a.Recv()
		<-f.Done()
		_, err = f.Await(testContext(t))
		mistake(t, "Recv after Runtime.Close", err, ErrConnClosed)
	}
}

// Rule: if either end closes the connection, the channel Conn.Done of both ends is closed, and the
// connection accepts no more operations.
func TestDoneSaysThatAConnectionEnds(t *testing.T) {
	a, b := connected(t, Config{})
	select {
	case <-a.Done():
		t.Fatal("Done of an open connection is closed, want an open channel")
	default:
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	<-b.Done()
	mistake(t, "Err of the end that was closed", a.Err(), ErrConnClosed)
	mistake(t, "Err of the peer's end", b.Err(), ErrPeerClosed)
}

// Rule: if a function holds the reactor's turn and does not return, Close of a connection or listener
// returns ErrReactorBusy soon after its context has ended. When the function has returned, a second Close
// succeeds.
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
				t.Errorf("closing the %s while its reactor is busy returned %v, want ErrReactorBusy", what, err)
			}
		})
	}
	wg.Wait()
	close(gate)
	for _, end := range []func(context.Context) error{a.Close, ln.Close, b.Close} {
		if err := end(testContext(t)); err != nil {
			t.Errorf("Close after the function had returned: %v", err)
		}
	}
}

// Rule: if a connection with receive buffers larger than MaxPooled is closed, the runtime soon unmaps these
// buffers, except the buffers of messages that are not released, which it unmaps soon after their release. When
// the runtime is closed, all are unmapped.
func TestBigReceivesAreUnmapped(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 2, MessageSize: MaxPooled + 1}})
	ms := sendAndTake(t, a, b, 1)
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	bigs := func() int { // read directly, because MemoryStats would unmap buffers
		b.rt.mem.mu.Lock()
		defer b.rt.mem.mu.Unlock()
		return b.rt.mem.bigs
	}
	eventually(t, "one mapped big buffer, that of the message", func() bool { return bigs() == 1 })
	release(t, ms...)
	eventually(t, "no mapped big buffer", func() bool { return bigs() == 0 })
	if err := b.rt.Close(testContext(t)); err != nil {
		t.Errorf("closing the runtime: %v", err)
	}
	if _, bytes := mem.Live(); bytes > 64<<20 {
		t.Errorf("%d bytes are mapped after the runtime was closed, want at most %d", bytes, 64<<20)
	}
}

// Rule: if calls of RecvWait give up before a message arrives, the connection soon drops their entries in
// the list of waiting receivers.
func TestGivenUpReceivesAreNotKept(t *testing.T) {
	a, b := connected(t, Config{})
	first := b.Recv() // no message has arrived, so Conn.match stops at this entry, the first in the list
	for range 5000 {
		if _, err := b.RecvWait(givenUp); !errors.Is(err, errGivenUp) {
			t.Fatalf("RecvWait with an ended context returned %v, want context.Canceled", err)
		}
	}
	kept := 0
	if err := b.sh.r.Do(testContext(t), func() { b.match(); kept = len(b.recvWaiters) }); err != nil {
		t.Fatal(err)
	}
	if kept > 2*pruneFrom {
		t.Errorf("the list of waiting receivers has %d entries, want at most %d; only one of the receivers has not given up", kept, 2*pruneFrom)
	}
	f, err := a.SendBytes(testContext(t), []byte("first"))
	done(t, f, err)
	m, err := first.Await(testContext(t))
	if err != nil || string(m.Data) != "first" {
		t.Fatalf("the waiting receiver got %q, error %v; want %q", m.Data, err, "first")
	}
	release(t, m)
}

// The following tests call Runtime.Close while other goroutines use the runtime.

// Rule: if other goroutines submit operations while a runtime is closed, one call of Close is enough, even
// if its context has ended. After Close has begun, new calls of these goroutines fail. Close waits until
// the calls in progress have returned.
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
			t.Errorf("round %d: closing the runtime of the writers: %v", round, err)
		}
		wg.Wait()
		if err := b.rt.Close(testContext(t)); err != nil {
			t.Errorf("round %d: closing the peer's runtime: %v", round, err)
		}
	}
}

// slicePair returns 8 bytes of the memory of a's runtime, and the descriptor of 8 bytes of the memory of b's
// runtime.
func slicePair(t *testing.T, a, b *Conn) (Slice, Remote) {
	t.Helper()
	region := must.Get(b.rt.NewRegion(8, allAccess))(t)
	r := must.Get(region.Remote(0, 8))(t)
	mine := must.Get(a.rt.NewRegion(8, allAccess))(t)
	s := must.Get(mine.Slice(0, 8))(t)
	return s, r
}

// Rule: if the program has not released a message when Close begins, Close waits until the program releases
// the message.
func TestCloseWaitsForAHeldMessage(t *testing.T) {
	a, b := connected(t, Config{})
	m := sendAndTake(t, a, b, 1)[0]
	closed := make(chan error, 1)
	go func() { closed <- b.rt.Close(testContext(t)) }()
	for !b.rt.mem.closing.Load() { // waits until Close has begun to close the memory
		stdruntime.Gosched()
	}
	// memory.Close sets the field closing, and finds the held message, while it holds a mutex. MemoryStats
	// locks the same mutex. So when MemoryStats returns, the first call of memory.Close has failed.
	b.rt.MemoryStats()
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close of a runtime whose message was released during Close returned %v, want nil", err)
	}
}

// Rule: if the program does not release a message within Config.grace, Close returns ErrBusy and does not
// change the message. When the program has released the message, a second Close succeeds.
func TestCloseSaysThatAMessageIsHeld(t *testing.T) {
	a, b := connected(t, Config{grace: 20 * time.Millisecond})
	m := sendAndTake(t, a, b, 1)[0]
	text := string(m.Data)
	if err := b.rt.Close(testContext(t)); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("Close while a message is not released returned %v, want ErrBusy", err)
	}
	if string(m.Data) != text {
		t.Errorf("after Close the message is %q, want %q as before", m.Data, text)
	}
	release(t, m)
	if err := b.rt.Close(testContext(t)); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// Rule: if a call that creates an object is between rt.enter() and rt.leave(), Close waits for the call.
// After the context of Close has ended, Close waits only Config.grace longer, and then returns ErrBusy. A
// later Close continues.
func TestCloseWaitsForWhatIsBeingMade(t *testing.T) {
	rt := mustOpen(t, Config{grace: 20 * time.Millisecond})
	if err := rt.enter(); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(endedContext()); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Close between enter and leave returned %v, want ErrBusy", err)
	}
	if err := rt.enter(); !errors.Is(err, ErrClosed) {
		t.Errorf("enter after Close had begun returned %v, want ErrClosed", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- rt.Close(testContext(t)) }()
	rt.leave()
	if err := <-closed; err != nil {
		t.Errorf("Close after leave returned %v, want nil", err)
	}
}

// Rule: if a reactor is closing a connection manager identifier that belongs to the event channel of another
// reactor, Runtime.Close waits until the identifier is closed.
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
			t.Fatalf("Close returned %v before the identifier was closed, want Close to wait", err)
		default:
		}
		if err := other.r.Do(testContext(t), func() { ending = other.ending }); err != nil {
			t.Fatal(err)
		}
	}
	close(slow.letGo)
	if err := <-closed; err != nil {
		t.Errorf("Close after the identifier was closed returned %v, want nil", err)
	}
}

// Rule: if a call of Dial, Accept or Resolve is in progress when Close begins, this call returns ErrClosed.
// If a call of Join is in progress, it returns ErrClosed or succeeds. After Close, calls that create an
// object return ErrClosed.
func TestCallsDuringCloseAnswerErrClosed(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	rt := mustOpen(t, Config{Provider: p, Device: "soft0"})
	ln := must.Get(rt.Listen(":0"))(t)
	pc := mustListenPacket(t, rt, Options{})
	link.SetAll(fabric.Link{Down: true}) // so no call gets an answer of a peer
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
	for live := 0; live < 1; { // waits until Dial has made its connection object
		rt.mu.Lock()
		live = len(rt.live)
		rt.mu.Unlock()
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatalf("Close while calls are in progress returned %v, want nil", err)
	}
	for name, ch := range got {
		if err := <-ch; !errors.Is(err, ErrClosed) && !(name == "Join" && err == nil) {
			t.Errorf("%s in progress at Close returned %v, want ErrClosed", name, err)
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
			t.Errorf("%s after Close returned %v, want ErrClosed", name, err)
		}
	}
}

// Rule: if a callback of a future is still running when Config.grace has passed since the end of Close's
// context, Close returns the error of this context. When the callback has returned, a second Close succeeds.
func TestCloseTellsItsContextsError(t *testing.T) {
	a, _ := connected(t, Config{grace: 20 * time.Millisecond})
	running, leave := make(chan struct{}), make(chan struct{})
	f := must.Get(a.SendBytes(testContext(t), []byte("x")))(t)
	f.Then(func(Result, error) { close(running); <-leave })
	<-running
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := a.rt.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a callback was running returned %v, want %v", err, context.DeadlineExceeded)
	}
	close(leave)
	if err := a.rt.Close(testContext(t)); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}
