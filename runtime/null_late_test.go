//go:build linux && cgo && !portable

package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// Rule (semantics 34): a device may flush late, or only when the queue pair is destroyed. Even then
// the outstanding operations of an aborted connection end within flushBound, and every buffer is
// freed. Close works.
// Defense: runtime/conn_teardown.go, the two timers of flushBound.
func TestNullLateFlush(t *testing.T) {
	for _, polls := range []uint32{0, 3} {
		t.Run(fmt.Sprintf("after %d polls", polls), func(t *testing.T) {
			d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true}})
			a, b := d.connect()
			buf := must.Get(d.client.Alloc(64))(t)
			stuck, err := a.Send(testContext(t), buf.Slice()) // the peer has no receive
			if err != nil {
				t.Fatal(err)
			}
			receive := must.Get(a.PostRecv(buf.Slice()))(t)
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

// Rule (semantics 34, invariant 8 of docs/architecture.md): if the device repeats a completion, the
// operation that uses the slot by then does not end.
// Defense: the generation in the wr_id (reactor/complete.go, dispatch).
func TestNullStaleCompletion(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true, SendDepth: 1}})
	a, b := d.connect()
	other, _ := d.connect()
	_, remote := d.target(64)
	// This fault never strikes, because its Nth is too large. But from here on it makes the device
	// remember completions.
	d.fault(nulldev.Fault{Kind: nulldev.StaleCompletion, Nth: 1 << 40})
	buf := must.Get(d.client.Alloc(64))(t)
	into := must.Get(d.server.Alloc(64))(t)
	receive := must.Get(b.PostRecv(into.Slice()))(t)
	sent, err := a.Send(testContext(t), buf.Slice()) // uses the only slot for the first time
	done(t, sent, err)
	done(t, receive, nil)
	stuck, err := a.Send(testContext(t), buf.Slice()) // the same slot; the peer has no receive
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
	receive = must.Get(b.PostRecv(into.Slice()))(t)
	done(t, receive, nil)
	done(t, stuck, nil)
	buf.Release()
	into.Release()
}

// Rule (semantics 34): completions of a destroyed queue pair have no effect, even if the number of
// the queue pair or the id of its reactor.Queue is in use again.
// Defense: Reactor.dispatch (reactor/complete.go). It drops a completion if no Queue has the id, if
// the Queue has another queue pair number, or if the slot has another generation.
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

// Rule: when a device dies, its outstanding and later operations end with ErrDeviceRemoved. The
// other end of each connection ends, too, and Close works.
// Defense: reactor/loop_pass.go (the error of a pass), runtime/runtime_removal.go.
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
			t.Cleanup(func() { // runs before the cleanups of the runtimes, so that these have a working device
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

// Rule: an operation whose completion never comes ends at the peer timeout. If the device then does
// not flush the queue pair, the operation ends when the queue pair is destroyed. Stats counts the
// timeout and the missing flush, and no object is left. The same holds while the connection is
// being closed.
// Defense: reactor/loop_watchdog.go, runtime/conn_peertimeout.go, runtime/conn_teardown.go.
func TestNullMissingCompletion(t *testing.T) {
	for _, flushes := range []bool{true, false} {
		for _, closing := range []bool{true, false} {
			t.Run(fmt.Sprintf("flushes %t, closing %t", flushes, closing), func(t *testing.T) {
				d := newBadDay(t, Config{Reactors: 1, Conn: Options{PeerTimeout: time.Second}})
				a, _ := d.connect()
				attr := must.Get(a.q.QP().Query())(t)
				bound := boundOf(attr.Timeout, attr.RetryCnt, time.Second)
				_, remote := d.target(64)
				d.adds(a, remote, 0, 3)
				missing := d.fault(nulldev.Fault{Kind: nulldev.Missing, Count: 1})
				if !flushes {
					d.fault(nulldev.Fault{Kind: nulldev.LateFlush})
				}
				from := time.Now() // before the post, because the reactor's measurement may begin at the post
				f := must.Get(a.Start(testContext(t), new(FetchAndAddOp(remote, 1))))(t)
				if closing {
					if err := a.Close(testContext(t)); err != nil {
						t.Error(err)
					}
					d.ends("an operation whose completion is missing", f, ErrConnClosed)
				} else {
					d.ends("an operation whose completion is missing", f, ErrPeerTimeout)
					_, err := a.RecvWait(testContext(t))
					d.isAll("a receive", err, ErrPeerTimeout)
				}
				if took := time.Since(from); took < bound || took > anEighth(bound)+flushBound+lateEvents {
					t.Errorf("it ended after %v, want %v and at most an eighth and %v more", took, bound, flushBound)
				}
				if d.null.Hits(missing) != 1 {
					t.Fatalf("%d completions are missing", d.null.Hits(missing))
				}
				if s := d.client.Stats(); s.PeerTimeouts != 1 || !flushes && s.Unflushed == 0 {
					t.Errorf("%d late and %d not flushed were counted", s.PeerTimeouts, s.Unflushed)
				}
			})
		}
	}
}

// The function told checks that rt learns of the removal of its device: p ends with
// ErrDeviceRemoved, and Prepare returns this error.
func told(t *testing.T, rt *Runtime, p *Prepared) {
	t.Helper()
	select {
	case <-p.c.Done():
		lost(t, "what was prepared", p.c.Err())
	case <-time.After(10 * time.Second):
		t.Error("nobody told the runtime that its device was removed")
	}
	_, err := rt.Prepare(PlainOptions{})
	lost(t, "preparing", err)
}

// Rule: when a device is removed, its runtime ends the connections on every reactor, even if the
// connections have no identifiers and the device itself reports nothing.
func TestRuntimeWithoutIdentifiersIsToldOfARemoval(t *testing.T) {
	provider, null := nullDevice(t)
	rt := mustOpen(t, Config{Provider: provider, Device: "null0", Reactors: 2, NoCallerDriving: true, Spin: -1})
	other := mustOpen(t, Config{Provider: provider, Device: "null1"})
	// one connection on each reactor
	ps := []*Prepared{prepare(t, rt, PlainOptions{}), prepare(t, rt, PlainOptions{})}
	bystander := prepare(t, other, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		told(t, rt, p)
	}
	if err := bystander.c.Err(); err != nil {
		t.Errorf("a connection of another device ended with %v", err)
	}
}

// Rule: to watch for the removal of its device, a runtime binds an identifier to the first address
// of the device that the connection manager accepts. If the connection manager accepts no address,
// the device is usable, but its removal is not watched.
func TestRemovalIsWatchedWhereAnAddressCanBeBound(t *testing.T) {
	provider, null := nullDevice(t)
	plan := &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt := mustOpen(t, Config{Provider: nth.Wrap(provider, plan), Device: "null0"})
	if _, struck := plan.Injected(); !struck || rt.shards[0].watch != nil {
		t.Fatalf("the address was refused: %v; the watch is %v", struck, rt.shards[0].watch)
	}
	prepare(t, rt, PlainOptions{})
	plan = &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt = mustOpen(t, Config{Provider: twoAddresses{nth.Wrap(provider, plan)}, Device: "null0"})
	p := prepare(t, rt, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	told(t, rt, p)
}

// twoAddresses is a provider whose devices list each of their addresses two times.
type twoAddresses struct{ verbs.Provider }

func (p twoAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &twiceContext{c, slices.Repeat(c.Device().Addr, 2)}, nil
}

type twiceContext struct {
	verbs.Context
	addr []netip.Addr
}

func (c *twiceContext) Device() verbs.DeviceInfo {
	d := c.Context.Device()
	d.Addr = c.addr
	return d
}
