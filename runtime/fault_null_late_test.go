//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule (semantics 34): a device that flushes only when the queue pair is
// destroyed, or late, keeps nobody waiting: what was under way ends within the
// runtime's bound, closing works, and every buffer comes back.
// Defence: runtime/conn_teardown.go, the two timers of flushBound.
func TestNullLateFlush(t *testing.T) {
	for _, polls := range []uint32{0, 3} {
		t.Run(fmt.Sprintf("after %d polls", polls), func(t *testing.T) {
			d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true}})
			a, b := d.connect()
			buf, err := d.client.Alloc(64)
			if err != nil {
				t.Fatal(err)
			}
			stuck, err := a.Send(testContext(t), buf.Slice()) // the peer has no receive
			if err != nil {
				t.Fatal(err)
			}
			receive, err := a.PostRecv(buf.Slice())
			if err != nil {
				t.Fatal(err)
			}
			d.fault(nulldev.Fault{Kind: nulldev.LateFlush, At: polls})
			from := time.Now()
			a.Abort()
			b.Abort()
			d.ends("a send under way", stuck, ErrConnClosed)
			d.ends("a receive under way", receive, ErrConnClosed)
			if took := time.Since(from); took > flushBound+lateEvents {
				t.Errorf("what was under way ended after %v, the bound is %v", took, flushBound)
			}
			for _, c := range []*Conn{a, b} {
				if err := c.Close(testContext(t)); err != nil {
					t.Error(err)
				}
			}
			buf.Release()
			if st := d.client.MemoryStats(); st.Buffers != 0 {
				t.Errorf("%d buffers are still out", st.Buffers)
			}
		})
	}
}

// Rule (semantics 34, invariant 8): a completion that comes a second time does
// not end the operation that has its place now.
// Defence: the generation in the wr_id (reactor/complete.go, dispatch).
func TestNullStaleCompletion(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true, SendDepth: 1}})
	a, b := d.connect()
	other, _ := d.connect()
	_, remote := d.target(64)
	d.fault(nulldev.Fault{Kind: nulldev.StaleCompletion, Nth: 1 << 40}) // from here on the device remembers
	buf, err := d.client.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	into, err := d.server.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	receive, err := b.PostRecv(into.Slice())
	if err != nil {
		t.Fatal(err)
	}
	sent, err := a.Send(testContext(t), buf.Slice()) // the only place, for the first time
	done(t, sent, err)
	done(t, receive, nil)
	stuck, err := a.Send(testContext(t), buf.Slice()) // the same place; the peer has no receive
	if err != nil {
		t.Fatal(err)
	}
	if err := a.sh.r.Do(testContext(t), a.sh.r.Flush); err != nil {
		t.Fatal(err)
	}
	stale := d.fault(nulldev.Fault{Kind: nulldev.StaleCompletion, Count: 1})
	d.adds(other, remote, 0, 1)
	if d.null.Hits(stale) != 1 {
		t.Fatalf("%d stale completions came", d.null.Hits(stale))
	}
	if n := d.client.Stats().Stale; n != 1 {
		t.Errorf("%d stale completions were counted, want 1", n)
	}
	if stuck.Settled() {
		t.Error("a send that nobody received has ended")
	}
	if receive, err = b.PostRecv(into.Slice()); err != nil {
		t.Fatal(err)
	}
	done(t, receive, nil)
	done(t, stuck, nil)
	buf.Release()
	into.Release()
}

// Rule (semantics 34): completions of a queue pair that is destroyed reach
// nobody, whoever has its number or its queue's place now.
// Defence: reactor/complete.go, dispatch: the queue is not found, or is another's
// by the number of the queue pair, or has another generation.
func TestNullCompletionsOfADestroyedQueuePair(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1})
	_, remote := d.target(64)
	f := d.fault(nulldev.Fault{Kind: nulldev.Leftover})
	for i := range 10 {
		a, b := d.connect()
		d.adds(a, remote, 3*i, 3)
		for _, c := range []*Conn{a, b} {
			if err := c.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		}
	}
	if d.null.Hits(f) == 0 {
		t.Error("no queue pair left a completion")
	}
	a, _ := d.connect()
	d.adds(a, remote, 30, 3)
	if n := d.client.Stats().Stale; n == 0 {
		t.Error("no stale completion was counted")
	}
}

// Rule: a device that dies ends everything on it with ErrDeviceRemoved, what is
// under way and what comes; the peer's side ends too; closing works.
// Defence: reactor/loop_turn.go (the error of a turn), runtime/runtime_unplug.go.
func TestNullDeviceFatal(t *testing.T) {
	for name, kill := range map[string]func(d *badDay, a *Conn){
		"from outside": func(d *badDay, _ *Conn) {
			if err := d.null.Kill("null0"); err != nil {
				d.t.Fatal(err)
			}
		},
		"at a post": func(d *badDay, a *Conn) {
			d.fault(nulldev.Fault{Kind: nulldev.Fatal, Call: "ibv_post_send", Count: 1})
			f, err := a.SendBytes(testContext(d.t), []byte("the last"))
			if err == nil {
				d.ends("the send that killed it", f, verbs.ErrDeviceRemoved)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newBadDay(t, Config{Reactors: 1})
			t.Cleanup(func() { // before the runtimes are closed: the death is the test's
				if err := d.null.Revive("null0"); err != nil {
					t.Error(err)
				}
			})
			a, b := d.connect()
			_, remote := d.target(64)
			d.adds(a, remote, 0, 3)
			receive := a.Recv()
			kill(d, a)
			if _, err := receive.Await(testContext(t)); !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("a receive under way ended with %v", err)
			}
			d.isAll("the connection's end", a.Err(), verbs.ErrDeviceRemoved)
			if _, err := d.client.Dial(testContext(t), d.ln.Addr().String()); !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("dialing on a dead device: %v", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := d.client.Close(ctx); err != nil {
				t.Errorf("closing on a dead device: %v", err)
			}
			select {
			case <-b.Done():
			case <-testContext(t).Done():
				t.Error("the peer's side goes on")
			}
		})
	}
}
