package runtime

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// slowID is an identifier whose closing takes the kernel until it is let go.
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

// Rule: a queue pair that the kernel takes its time to destroy holds up no other
// connection of its reactor; its own operations, whose memory the device may still have,
// end when it is gone.
func TestAQueuePairThatIsSlowToGoHoldsUpNobody(t *testing.T) {
	onBeds(t, slowToGoHoldsUpNobody)
}

func slowToGoHoldsUpNobody(t *testing.T, d bed) {
	cfg := Config{Reactors: 1}
	server, client := d.open(t, cfg, 1), d.open(t, cfg, 0)
	ln, err := server.ListenOptions(":0", Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs [2]*Conn
	for i := range ours {
		seat, err := ln.AcceptAsync()
		if err != nil {
			t.Fatal(err)
		}
		if ours[i], err = client.DialOptions(testContext(t), ln.Addr().String(), Options{Raw: true}); err != nil {
			t.Fatal(err)
		}
		if theirs[i], err = seat.Await(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	slow, other := ours[0], ours[1]
	buf, err := client.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	out, err := slow.PostRecv(buf.Slice())
	if err != nil {
		t.Fatal(err)
	}
	held := newSlowID(slow.id)
	if err := slow.sh.r.Do(testContext(t), func() {
		slow.sh.r.Flush() // the receive is the device's
		slow.setCause(ErrConnClosed)
		slow.refuse()
		delete(slow.sh.targets, slow.id)
		slow.id = held
		slow.destroy(nil) // as when the device has not flushed it in time
	}); err != nil {
		t.Fatal(err)
	}
	var late atomic.Bool
	release := sync.OnceFunc(func() { close(held.letGo) })
	rescue := time.AfterFunc(10*time.Second, func() { late.Store(true); release() }) // of a turn that is held, so that the test ends
	defer rescue.Stop()
	<-held.begun
	for range 10 { // the reactor turns, and posts and takes what is others'
		into, err := server.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		got, err := theirs[1].PostRecv(into.Slice())
		if err != nil {
			t.Fatal(err)
		}
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

// countedID is an identifier that says how many are being closed at once.
type countedID struct {
	verbs.Object
	now, most *atomic.Int64
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

// Rule: no more than closersMost identifiers of a reactor are closed at once, all are
// in the end, and Close of the runtime waits for them.
func TestIdentifiersAreClosedAFewAtATime(t *testing.T) {
	rt := mustOpen(t, Config{Reactors: 1})
	sh := rt.shards[0]
	var now, most atomic.Int64
	letGo := make(chan struct{})
	const n = 3*closersMost + 1
	told := 0 // the holder's
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
	for until := testContext(t); now.Load() < closersMost; {
		if until.Err() != nil {
			t.Fatalf("%d are being closed, want %d", now.Load(), closersMost)
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
	if told != n || most.Load() != closersMost {
		t.Errorf("%d of %d were closed, up to %d at once; want all, %d at once", told, n, most.Load(), closersMost)
	}
}

// Rule: Close waits some seconds for a queue pair that the kernel is destroying, as it
// takes with packets for a neighbour that does not answer: it is closed, and nobody was
// busy.
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
	end() // so that Close waits for nothing else
	closed := make(chan error, 1)
	go func() { closed <- a.Close(gone) }()
	<-held.begun
	begun := time.Now()
	time.AfterFunc(closeBound+leaveBound/2, func() { close(held.letGo) })
	if err := <-closed; err != nil {
		t.Errorf("closing while the kernel took %v to destroy the queue pair: %v", time.Since(begun).Round(time.Millisecond), err)
	}
}
