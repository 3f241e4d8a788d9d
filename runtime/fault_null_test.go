//go:build linux && cgo && !portable

package runtime

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// These tests run the runtime on the null device, loaded as libibverbs and
// librdmacm, and have that do what devices do on bad days. Each was seen to fail
// without the defence it names.

// Rule (semantics 22): a list that is refused at any position is split there.
// What stands before it succeeds, though the request that was to be signaled is
// cut off; the rest fails with the errno; the connection goes on.
// Defence: the marker (reactor/post_settle.go, postMarker).
func TestNullBadWRAtEachPosition(t *testing.T) {
	d := newBadDay(t, Config{Spin: -1, Reactors: 1})
	a, _ := d.connect()
	_, remote := d.target(64)
	const n = 5
	sum := 0
	for _, how := range []nulldev.How{nulldev.ByErrno, nulldev.MinusOne, nulldev.Negative} {
		for at := range n {
			f := d.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_send", Count: 1, Err: syscall.ENOMEM, How: how, At: uint32(at)})
			for i, x := range d.batch(a, remote, n) {
				r, err := x.Await(testContext(t))
				switch {
				case i >= at:
					d.isAll(fmt.Sprintf("request %d of a list refused at %d", i, at), err, syscall.ENOMEM)
				case err != nil || r.Value != uint64(sum+i):
					t.Errorf("request %d of a list refused at %d: %d, %v, want %d", i, at, r.Value, err, sum+i)
				}
			}
			if d.null.Hits(f) != 1 {
				t.Errorf("the list was refused %d times", d.null.Hits(f))
			}
			sum += at
			d.adds(a, remote, sum, 3)
			sum += 3
			d.null.Clear()
		}
	}
}

// Rule: a receive that is refused while a connection is made, at any position of
// the list and on whichever side, ends that connection, on both sides and soon;
// the next is made.
// Defence: reactor/post_settle.go, recvPostFailed.
func TestNullReceiveRefusedAtEachPosition(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	ctx := testContext(t)
	go func() { // until the listener is closed
		for {
			if _, err := d.ln.Accept(ctx); err != nil {
				return
			}
		}
	}()
	for _, at := range []uint32{0, 1, DefaultRecvCredits - 1} {
		f := d.fault(nulldev.Fault{Kind: nulldev.BadWR, Call: "ibv_post_recv", Count: 1, Err: syscall.ENOMEM, At: at})
		c, err := d.client.Dial(ctx, d.ln.Addr().String())
		if err == nil { // it is the other side that was refused
			select {
			case <-c.Done():
			case <-ctx.Done():
				t.Fatalf("the connection lives with receive %d refused", at)
			}
		}
		if d.null.Hits(f) != 1 {
			t.Errorf("a post of receives was refused %d times", d.null.Hits(f))
		}
		d.null.Clear()
		if c, err = d.client.Dial(ctx, d.ln.Addr().String()); err != nil {
			t.Fatalf("dialing again: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if st := d.client.MemoryStats(); st.Buffers != 0 {
		t.Errorf("%d buffers are still out", st.Buffers)
	}
	if err := d.ln.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Rule (semantics 29): a completion queue that overruns fails everything on it,
// what is under way and what comes, with the cause; closing works.
// Defence: reactor/loop_turn.go, polled (the errno of a poll) and die.
func TestNullOverrun(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	a, b := d.connect()
	_, remote := d.target(64)
	d.adds(a, remote, 0, 10)
	d.fault(nulldev.Fault{Kind: nulldev.Overrun, Count: 1})
	f, err := a.Start(testContext(t), new(FetchAndAddOp(remote, 1)))
	if err != nil {
		t.Fatal(err)
	}
	d.ends("an addition whose completion found no room", f, reactor.ErrOverrun)
	for _, c := range []*Conn{a, b} {
		select {
		case <-c.Done():
		case <-testContext(t).Done():
			t.Fatal("a connection over a dead queue goes on, or its peer does")
		}
	}
	d.isAll("the connection's end", a.Err(), reactor.ErrOverrun)
	if _, err := a.Start(testContext(t), new(FetchAndAddOp(remote, 1))); err == nil {
		t.Error("a dead connection takes operations")
	}
}

// lateEvents is how much later than the bound a completion without an event may
// be on a busy machine.
const lateEvents = 4 * time.Second

// Rule (semantics 26): with every completion event lost, what completes is found
// within the reactor's recheck, on both sides; nothing waits for ever.
// Defence: reactor/loop_recheck.go.
func TestNullLostEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, b := d.connect()
	f := d.fault(nulldev.Fault{Kind: nulldev.LostEvent})
	// The first ones may come while the loop is awake, and need no event.
	for i := 0; i < 50 && d.server.Stats().Missed == 0; i++ {
		slept := d.server.Stats().Sleeps
		got := b.Recv()
		for d.server.Stats().Sleeps == slept {
			runtime.Gosched()
		}
		from := time.Now()
		_, err := a.SendBytes(testContext(t), []byte{byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		m, err := got.Await(testContext(t))
		if err != nil {
			t.Fatalf("message %d with every event lost: %v", i, err)
		}
		if took := time.Since(from); took > reactor.DefaultRecheck+lateEvents {
			t.Errorf("message %d took %v, the bound is %v", i, took, reactor.DefaultRecheck)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	}
	if d.null.Hits(f) == 0 || d.server.Stats().Missed == 0 {
		t.Errorf("%d events were lost, %d missed", d.null.Hits(f), d.server.Stats().Missed)
	}
}

// Rule (semantics 26, 27): events for nothing cost nothing but a look, and are
// acknowledged all the same: closing does not wait for them.
// Defence: reactor/loop_sleep.go, takeEvents (acknowledging), and that an event is not
// taken for a completion.
func TestNullSpuriousEvents(t *testing.T) {
	d := newBadDay(t, Config{NoCallerDriving: true, Spin: -1, Reactors: 1})
	a, _ := d.connect()
	_, remote := d.target(64)
	const rounds = 200
	for i := range rounds {
		if d.null.SpuriousEvents() == 0 {
			t.Fatal("no queue has a channel")
		}
		d.adds(a, remote, i, 1)
	}
	ctx := testContext(t)
	for d.client.Stats().Events < rounds && ctx.Err() == nil { // the loop takes them when it wakes
		f, err := a.Start(ctx, new(FetchAndAddOp(remote, 0)))
		done(t, f, err)
	}
	if n := d.client.Stats().Events; n < rounds {
		t.Errorf("%d of %d events were taken", n, rounds)
	}
}
