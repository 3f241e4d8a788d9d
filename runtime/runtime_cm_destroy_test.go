package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// busyID is a CM identifier whose first calls of Close fail with ErrBusy. (Close of a real identifier
// fails with ErrBusy while an event of the identifier is not acknowledged.)
type busyID struct {
	queuePairID
	busy   int // number of calls of Close that still fail with ErrBusy
	closed int // how many calls of Close succeeded
}

func (id *busyID) Close() error {
	if id.busy--; id.busy >= 0 {
		return fmt.Errorf("%w: an event is not acknowledged", verbs.ErrBusy)
	}
	id.closed++
	if id.queuePairID == nil {
		return nil
	}
	return id.queuePairID.Close()
}

// Rule: if closeID is called several times for one identifier, each callback is called once, in the
// order of the calls of closeID. This holds even if the first tries to close the identifier fail.
func TestEverybodyWhoClosesAnIdentifierIsTold(t *testing.T) {
	rt := mustOpen(t, Config{NoCallerDriving: true})
	sh, told := rt.shards[0], make(chan int, 8)
	tell := func(n int) func(error) {
		return func(err error) {
			if err != nil {
				t.Errorf("callback %d got the error %v, want nil", n, err)
			}
			told <- n
		}
	}
	id := &busyID{busy: 3}
	if err := sh.r.Do(testContext(t), func() {
		sh.closeID(id, tell(1))
		sh.closeID(id, nil)
		sh.closeID(id, tell(2))
		sh.closeID(id, tell(3))
	}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 3 {
		select {
		case n := <-told:
			got = append(got, n)
		case <-time.After(10 * time.Second):
			t.Fatalf("within 10 s only the callbacks %v were called, want 1, 2 and 3", got)
		}
	}
	if err := sh.r.Do(testContext(t), func() {
		if !slices.Equal(got, []int{1, 2, 3}) || len(told) != 0 || id.closed != 1 || len(sh.closing) != 0 {
			t.Errorf("the callbacks were called in the order %v, want [1 2 3]; then callbacks were called %d times more, want 0", got, len(told))
			t.Errorf("Close of the identifier succeeded %d times, want once; %d identifiers are left in shard.closing, want 0", id.closed, len(sh.closing))
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Rule: if Close of a connection's identifier fails with ErrBusy when the device is removed, the
// connection can still be closed. In this case closeID is called twice for the identifier: once because
// of the removal, and once because the connection is closed.
func TestClosingMeetsARemovalWithABusyIdentifier(t *testing.T) {
	for busy := 1; busy <= 4; busy++ { // the second call of closeID may come before or after the try that succeeds
		t.Run(fmt.Sprintf("the first %d tries fail", busy), func(t *testing.T) { closingMeetsARemoval(t, busy) })
	}
}

func closingMeetsARemoval(t *testing.T, busy int) {
	r := newPlugRig(t, Config{NoCallerDriving: true})
	ctx := testContext(t)
	c, _ := r.connect(r.a, r.b, Options{Raw: true})
	if err := c.sh.r.Do(ctx, func() {
		c.id = &busyID{queuePairID: c.id, busy: busy}
		c.fail(verbs.ErrDeviceRemoved) // calls detach, which closes the identifier
		c.end(false)
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection was not closed within 10 s")
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
}

// brokenID is a CM identifier whose Close always fails with EIO.
type brokenID struct {
	verbs.Object
	tries int // how many calls of Close have failed
}

func (id *brokenID) Close() error {
	id.tries++
	return syscall.EIO
}

// Rule: if an identifier is not closed yet, Runtime.Close tries once more to close the identifier. If
// this try fails, Runtime.Close gives the identifier up, and the callback gets the error.
func TestCloseTriesABrokenIdentifierOnce(t *testing.T) {
	notOnDevice(t, "the test needs a stepped runtime")
	rt := mustOpen(t, Config{stepped: true, now: func() time.Time { return time.Unix(0, 0) }})
	id := &brokenID{}
	var ends []error
	rt.shards[0].closeID(id, func(err error) { ends = append(ends, err) })
	if id.tries != 1 || len(ends) != 0 {
		t.Fatalf("before Runtime.Close: %d tries, want 1; the callback got %v, want no call", id.tries, ends)
	}
	if err := rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if id.tries != 2 || len(ends) != 1 || !errors.Is(ends[0], syscall.EIO) {
		t.Errorf("after Runtime.Close: %d tries, want 2; the callback got the errors %v, want only %v", id.tries, ends, syscall.EIO)
	}
}

// slowID is a CM identifier whose Close takes long, as if the kernel destroyed the queue pair slowly.
// Close closes id.begun, and then waits until the test closes id.letGo.
type slowID struct {
	queuePairID
	begun chan struct{}
	letGo chan struct{}
}

func newSlowID(id queuePairID) *slowID {
	return &slowID{queuePairID: id, begun: make(chan struct{}), letGo: make(chan struct{})}
}

func (id *slowID) Close() error {
	close(id.begun)
	<-id.letGo
	return id.queuePairID.Close()
}

// Rule: if the kernel destroys a queue pair slowly, other connections of the same reactor are not
// delayed. The operations of the queue pair end only when the queue pair is destroyed, because the
// device may use their memory until then.
func TestAQueuePairThatIsSlowToGoHoldsUpNobody(t *testing.T) {
	onBeds(t, slowToGoHoldsUpNobody)
}

func slowToGoHoldsUpNobody(t *testing.T, d bed) {
	cfg := Config{Reactors: 1}
	server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
	ln := must.Get(server.ListenOptions(":0", Options{Raw: true}))(t)
	var ours, theirs [2]*Conn
	for i := range ours {
		seat := must.Get(ln.AcceptAsync())(t)
		ours[i] = must.Get(client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true}))(t)
		theirs[i] = must.Get(seat.Await(testContext(t)))(t)
	}
	slow, other := ours[0], ours[1]
	buf := must.Get(client.Alloc(8))(t)
	out := must.Get(slow.PostRecv(buf.Slice()))(t)
	held := newSlowID(slow.id)
	if err := slow.sh.r.Do(testContext(t), func() {
		slow.sh.r.Flush() // posts the receive
		slow.setCause(ErrConnClosed)
		slow.refuseOps()
		delete(slow.sh.targets, slow.id)
		slow.id = held
		slow.destroy(nil) // Conn.fail does this if the device has not flushed the queue pair within flushBound
	}); err != nil {
		t.Fatal(err)
	}
	var late atomic.Bool
	release := sync.OnceFunc(func() { close(held.letGo) })
	// If the holder of the turn wrongly calls held.Close(), the other connection is blocked. Then this
	// timer makes held.Close() return, and the test fails instead of hanging.
	rescue := time.AfterFunc(10*time.Second, func() { late.Store(true); release() })
	defer rescue.Stop()
	<-held.begun
	for range 10 { // the other connection works while held.Close() runs
		into := must.Get(server.Alloc(8))(t)
		got := must.Get(theirs[1].PostRecv(into.Slice()))(t)
		f, err := other.SendBytes(testContext(t), []byte("well"))
		done(t, f, err)
		done(t, got, nil)
		if err := into.Release(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-slow.closed:
		t.Error("the connection was closed before its queue pair was destroyed")
	default:
	}
	if _, _, settled := out.Poll(); settled {
		t.Error("the receive ended before its queue pair was destroyed")
	}
	if late.Load() {
		t.Error("the other connection was blocked for 10 s, until the queue pair was destroyed")
	}
	release()
	if _, err := out.Await(testContext(t)); err == nil {
		t.Error("the receive succeeded, but no message was sent")
	}
	<-slow.closed
	if err := buf.Release(); err != nil {
		t.Error(err)
	}
}

// countedID is a CM identifier whose Close waits until the test closes id.letGo.
type countedID struct {
	verbs.Object
	now, most *atomic.Int64 // *now is the number of running calls of Close, *most the largest number so far
	letGo     <-chan struct{}
}

func (id *countedID) Close() error {
	n := id.now.Add(1)
	for m := id.most.Load(); n > m && !id.most.CompareAndSwap(m, n); m = id.most.Load() {
	}
	<-id.letGo
	id.now.Add(-1)
	return nil
}

// Rule: a reactor closes at most maxClosers identifiers at a time. Runtime.Close waits until all
// identifiers are closed.
func TestIdentifiersAreClosedAFewAtATime(t *testing.T) {
	rt := mustOpen(t, Config{Reactors: 1})
	sh := rt.shards[0]
	var now, most atomic.Int64
	letGo := make(chan struct{})
	const n = 3*maxClosers + 1
	told := 0 // how many callbacks were called; owned by the holder
	if err := sh.r.Do(testContext(t), func() {
		for range n {
			sh.closeID(&countedID{now: &now, most: &most, letGo: letGo}, func(err error) {
				if told++; err != nil {
					t.Errorf("a callback got the error %v, want nil", err)
				}
			})
		}
	}); err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(sh.settleIDs(waiting), sh.close(waiting)) }()
	for until := testContext(t); now.Load() < maxClosers; {
		if until.Err() != nil {
			t.Fatalf("%d calls of Close are running, want %d", now.Load(), maxClosers)
		}
	}
	stop()
	if err := <-closed; !errors.Is(err, context.Canceled) {
		t.Errorf("shard.end with a canceled context while identifiers are being closed: %v, want %v", err, context.Canceled)
	}
	close(letGo)
	if err := rt.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if told != n || most.Load() != maxClosers {
		t.Errorf("%d of %d identifiers were closed, want all; up to %d calls of Close ran at a time, want %d", told, n, most.Load(), maxClosers)
	}
}

// Rule: after the context of Close has ended, Close waits up to closeBound. If the kernel is still
// destroying the queue pair at the end of closeBound, Close waits up to leaveBound longer. If the kernel
// finishes in that time, Close returns nil. (The kernel takes seconds if packets of the queue pair wait
// for a neighbor that does not answer ARP.)
func TestCloseWaitsForTheKernel(t *testing.T) {
	a, _ := connected(t, Config{Reactors: 1})
	held := newSlowID(a.id)
	if err := a.sh.r.Do(testContext(t), func() {
		delete(a.sh.targets, a.id)
		a.id = held
	}); err != nil {
		t.Fatal(err)
	}
	gone, end := context.WithCancel(t.Context())
	end() // the context has ended, so Close waits only for the reactor and the queue pair
	closed := make(chan error, 1)
	go func() { closed <- a.Close(gone) }()
	<-held.begun
	begun := time.Now()
	time.AfterFunc(closeBound+leaveBound/8, func() { close(held.letGo) })
	if err := <-closed; err != nil {
		t.Errorf("Close returned %v, want nil; destroying the queue pair took %v", err, time.Since(begun).Round(time.Millisecond))
	}
}

// Rule: the CM identifier of an accepted connection belongs to the connection's reactor only. So
// the identifier's events arrive even while the listener's reactor is blocked.
func TestAnAcceptedIdentifierMovesToItsReactor(t *testing.T) {
	const reactors, conns = 2, 4
	onBeds(t, func(t *testing.T, d bed) {
		cfg := Config{Reactors: reactors, NoCallerDriving: true, ConnectTimeout: patience()}
		server, client := d.open(t, cfg, 1), d.open(t, Config{ConnectTimeout: patience()}, 0)
		ctx := testContext(t)
		ln := must.Get(server.Listen(":0"))(t)
		home := ln.sh
		var near, far, farPeers []*Conn
		for range conns {
			seat := must.Get(ln.AcceptAsync())(t)
			a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
			b := must.Get(seat.Await(ctx))(t)
			belongs(t, server, b)
			if b.sh == home {
				near = append(near, b)
			} else {
				far, farPeers = append(far, b), append(farPeers, a)
			}
		}
		if len(near) == 0 || len(far) == 0 {
			t.Fatalf("%d connections are on the listener's reactor and %d on the other reactor, want at least one on each", len(near), len(far))
		}
		enter, leave := make(chan struct{}), make(chan struct{})
		held := make(chan error, 1)
		go func() { held <- home.r.Do(ctx, func() { close(enter); <-leave }) }()
		<-enter
		for _, a := range farPeers {
			a.Abort()
		}
		for i, b := range far {
			select {
			case <-b.Done():
			case <-ctx.Done():
				t.Errorf("the peer of connection %d on the other reactor aborted, but the connection did not end while the listener's reactor was blocked", i)
			}
		}
		close(leave)
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		for i, b := range near {
			if err := b.Err(); err != nil {
				t.Errorf("connection %d of the listener's reactor ended with %v, but its peer did not disconnect", i, err)
			}
		}
	})
}

// belongs() checks that c is in shard.targets of its own reactor, and not in shard.targets of any
// other reactor.
func belongs(t *testing.T, rt *Runtime, c *Conn) {
	t.Helper()
	for i, sh := range rt.shards {
		if err := sh.r.Do(testContext(t), func() {
			has := false
			for _, target := range sh.targets {
				has = has || target == cmTarget(c)
			}
			if has != (sh == c.sh) {
				t.Errorf("is the connection in shard.targets of reactor %d? %t, want %t", i, has, sh == c.sh)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
