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

// busyID is a CM identifier. Its first calls of Close fail with ErrBusy, as if an event was not
// acknowledged.
type busyID struct {
	queuePairID
	busy   int // how many more calls of Close fail
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

// Rule: if closeID is called several times for one identifier, it calls each callback once, in the
// order of the calls. This holds even if the device first refuses to close the identifier.
func TestEverybodyWhoClosesAnIdentifierIsTold(t *testing.T) {
	rt := mustOpen(t, Config{NoCallerDriving: true})
	sh, told := rt.shards[0], make(chan int, 8)
	tell := func(n int) func(error) {
		return func(err error) {
			if err != nil {
				t.Errorf("caller %d was told %v", n, err)
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
			t.Fatalf("only %v were told", got)
		}
	}
	if err := sh.r.Do(testContext(t), func() {
		if !slices.Equal(got, []int{1, 2, 3}) || len(told) != 0 || id.closed != 1 || len(sh.closing) != 0 {
			t.Errorf("told were %v and %d more; it was closed %d times, %d are left", got, len(told), id.closed, len(sh.closing))
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Rule: if the identifier of a connection is busy when the device is removed, the connection can
// still be closed. The removal and the owner of the connection both close the identifier.
func TestClosingMeetsARemovalWithABusyIdentifier(t *testing.T) {
	for busy := 1; busy <= 4; busy++ { // the owner may call closeID before or after the try that succeeds
		t.Run(fmt.Sprint(busy), func(t *testing.T) { closingMeetsARemoval(t, busy) })
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
		t.Fatal("nobody told the connection that its identifier was closed")
	}
	if err := r.p.Remove("a"); err != nil {
		t.Fatal(err)
	}
}

// brokenID is a CM identifier that cannot be closed.
type brokenID struct {
	verbs.Object
	tries int // how many calls of Close have failed
}

func (id *brokenID) Close() error {
	id.tries++
	return syscall.EIO
}

// Rule: for an identifier that is not closed yet, Runtime.Close makes one more try, and then gives
// it up.
func TestCloseTriesABrokenIdentifierOnce(t *testing.T) {
	notOnDevice(t, "a stepped runtime")
	rt := mustOpen(t, Config{stepped: true, now: func() time.Time { return time.Unix(0, 0) }})
	id := &brokenID{}
	var ends []error
	rt.shards[0].closeID(id, func(err error) { ends = append(ends, err) })
	if id.tries != 1 || len(ends) != 0 {
		t.Fatalf("before Close there were %d tries, want 1, and the end %v", id.tries, ends)
	}
	if err := rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if id.tries != 2 || len(ends) != 1 || !errors.Is(ends[0], syscall.EIO) {
		t.Errorf("after %d tries the caller was told %v, want one %v after 2 tries", id.tries, ends, syscall.EIO)
	}
}

// slowID is a CM identifier whose Close takes long, as if the kernel was slow. Close first closes
// the channel begun. It then waits until the test closes the channel letGo.
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
// delayed. The operations of the queue pair end only when it is destroyed, because the device may
// use their memory until then.
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
		slow.destroy(nil) // as when the device has not flushed the queue pair within flushBound
	}); err != nil {
		t.Fatal(err)
	}
	var late atomic.Bool
	release := sync.OnceFunc(func() { close(held.letGo) })
	// This timer ends the test even if held.Close() runs while the turn is held.
	rescue := time.AfterFunc(10*time.Second, func() { late.Store(true); release() })
	defer rescue.Stop()
	<-held.begun
	for range 10 { // the other connection works
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
		t.Error("a connection is closed whose queue pair is not gone")
	default:
	}
	if _, _, settled := out.Poll(); settled {
		t.Error("a receive ended before the queue pair that has its memory")
	}
	if late.Load() {
		t.Error("the others went on only when the queue pair was gone")
	}
	release()
	if _, err := out.Await(testContext(t)); err == nil {
		t.Error("a receive that nothing came for succeeded")
	}
	<-slow.closed
	if err := buf.Release(); err != nil {
		t.Error(err)
	}
}

// countedID is a CM identifier whose Close waits until the channel letGo is closed.
type countedID struct {
	verbs.Object
	now, most *atomic.Int64 // now: running calls of Close; most: the largest value of now so far
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

// Rule: a reactor closes at most maxClosers identifiers at a time. Runtime.Close waits until all of
// them are closed.
func TestIdentifiersAreClosedAFewAtATime(t *testing.T) {
	rt := mustOpen(t, Config{Reactors: 1})
	sh := rt.shards[0]
	var now, most atomic.Int64
	letGo := make(chan struct{})
	const n = 3*maxClosers + 1
	told := 0 // owned by the holder
	if err := sh.r.Do(testContext(t), func() {
		for range n {
			sh.closeID(&countedID{now: &now, most: &most, letGo: letGo}, func(err error) {
				if told++; err != nil {
					t.Errorf("closing: %v", err)
				}
			})
		}
	}); err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- sh.end(waiting) }()
	for until := testContext(t); now.Load() < maxClosers; {
		if until.Err() != nil {
			t.Fatalf("%d are being closed, want %d", now.Load(), maxClosers)
		}
	}
	stop()
	if err := <-closed; !errors.Is(err, context.Canceled) {
		t.Errorf("closing while identifiers are: %v, want %v", err, context.Canceled)
	}
	close(letGo)
	if err := rt.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if told != n || most.Load() != maxClosers {
		t.Errorf("%d of %d were closed, up to %d at once; want all, %d at once", told, n, most.Load(), maxClosers)
	}
}

// Rule: if the kernel destroys a queue pair slowly, Close waits up to leaveBound longer than usual.
// If the kernel finishes in that time, Close returns nil. (The kernel takes seconds if packets wait
// for a neighbor that does not answer.)
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
	end() // so that Close waits only for the queue pair
	closed := make(chan error, 1)
	go func() { closed <- a.Close(gone) }()
	<-held.begun
	begun := time.Now()
	time.AfterFunc(closeBound+leaveBound/8, func() { close(held.letGo) })
	if err := <-closed; err != nil {
		t.Errorf("closing while the kernel took %v to destroy the queue pair: %v", time.Since(begun).Round(time.Millisecond), err)
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
			t.Fatalf("%d connections on the listener's reactor, %d on others: both are wanted", len(near), len(far))
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
				t.Errorf("far connection %d did not hear of its end while the listener's reactor was away", i)
			}
		}
		close(leave)
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		for i, b := range near {
			if err := b.Err(); err != nil {
				t.Errorf("near connection %d, whose peer is there, ended with %v", i, err)
			}
		}
	})
}

// belongs() checks that the reactor of c has c among its targets (shard.targets), and that no other
// reactor has.
func belongs(t *testing.T, rt *Runtime, c *Conn) {
	t.Helper()
	for i, sh := range rt.shards {
		if err := sh.r.Do(testContext(t), func() {
			has := false
			for _, target := range sh.targets {
				has = has || target == cmTarget(c)
			}
			if has != (sh == c.sh) {
				t.Errorf("reactor %d has the identifier: %t; it has the connection: %t", i, has, sh == c.sh)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
