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

// Rule (semantics 34): if the device flushes late, or only when the queue pair is destroyed, the
// outstanding operations of an aborted connection still end within flushBound. Then Close succeeds,
// and no buffer stays leased.
// Ensured by: runtime/conn_teardown.go, the two timers of flushBound.
func TestNullLateFlush(t *testing.T) {
	for _, polls := range []uint32{0, 3} {
		name := fmt.Sprintf("flush after %d polls", polls)
		if polls == 0 {
			name = "flush at destruction"
		}
		t.Run(name, func(t *testing.T) {
			d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true}})
			a, b := d.connect()
			buf := must.Get(d.client.Alloc(64))(t)
			stuck, err := a.Send(testContext(t), buf.Slice()) // does not complete: the peer has posted no receive
			if err != nil {
				t.Fatal(err)
			}
			receive := must.Get(a.PostRecv(buf.Slice()))(t)
			d.fault(nulldev.Fault{Kind: nulldev.LateFlush, At: polls})
			from := time.Now()
			a.Abort()
			b.Abort()
			d.ends("the outstanding send", stuck, ErrConnClosed)
			d.ends("the outstanding receive", receive, ErrConnClosed)
			if took := time.Since(from); took > flushBound+lateEvents {
				t.Errorf("the outstanding operations ended %v after Abort, want at most %v and the margin %v", took, flushBound, lateEvents)
			}
			for i, c := range []*Conn{a, b} {
				if err := c.Close(testContext(t)); err != nil {
					t.Errorf("Close of end %d after Abort returned %v, want nil", i, err)
				}
			}
			buf.Release()
			if st := d.client.MemoryStats(); st.Buffers != 0 {
				t.Errorf("%d buffers are leased after all were released, want 0", st.Buffers)
			}
		})
	}
}

// Rule (semantics 34, invariant 8 of docs/architecture.md): if the device repeats the completion of an
// operation, the repeated completion does not end a later operation that uses the same slot.
// Ensured by: the generation in the wr_id (reactor/complete.go, dispatch).
func TestNullStaleCompletion(t *testing.T) {
	d := newBadDay(t, Config{Reactors: 1, Conn: Options{Raw: true, SendDepth: 1}})
	a, b := d.connect()
	other, _ := d.connect()
	_, remote := d.target(64)
	// The null device remembers the last completion only while it has a fault. This fault repeats no
	// completion, because its Nth is too large.
	d.fault(nulldev.Fault{Kind: nulldev.StaleCompletion, Nth: 1 << 40})
	buf := must.Get(d.client.Alloc(64))(t)
	into := must.Get(d.server.Alloc(64))(t)
	receive := must.Get(b.PostRecv(into.Slice()))(t)
	sent, err := a.Send(testContext(t), buf.Slice()) // uses the only slot of a
	done(t, sent, err)
	done(t, receive, nil)
	stuck, err := a.Send(testContext(t), buf.Slice()) // uses the same slot; does not complete: the peer has posted no receive
	if err != nil {
		t.Fatal(err)
	}
	if err := a.sh.r.Do(testContext(t), a.sh.r.Flush); err != nil {
		t.Fatal(err)
	}
	stale := d.fault(nulldev.Fault{Kind: nulldev.StaleCompletion, Count: 1})
	d.adds(other, remote, 0, 1)
	if d.null.Hits(stale) != 1 {
		t.Fatalf("the device repeated %d completions, want 1", d.null.Hits(stale))
	}
	if n := d.client.Stats().Stale; n != 1 {
		t.Errorf("Stats.Stale is %d, want 1", n)
	}
	if stuck.Settled() {
		t.Error("the second send has ended, although the peer has posted no receive")
	}
	receive = must.Get(b.PostRecv(into.Slice()))(t)
	done(t, receive, nil)
	done(t, stuck, nil)
	buf.Release()
	into.Release()
}

// Rule (semantics 34): a completion of a destroyed queue pair has no effect, even if another queue pair has
// the same number, or another reactor.Queue has the same id.
// Ensured by: Reactor.dispatch (reactor/complete.go). It drops a completion if no Queue has the id, if
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
		t.Error("0 destroyed queue pairs left completions, want 1 or more")
	}
	a, _ := d.connect()
	d.adds(a, remote, 30, 3)
	if n := d.client.Stats().Stale; n == 0 {
		t.Error("Stats.Stale is 0, want 1 or more")
	}
}

// Rule: if a device fails for good, its outstanding and later operations end with ErrDeviceRemoved.
// The peer's end of each connection ends, too, and Runtime.Close succeeds.
// Ensured by: reactor/loop_pass.go (the error of a pass), runtime/runtime_removal.go.
func TestNullDeviceFatal(t *testing.T) {
	for name, kill := range map[string]func(d *badDay, a *Conn){
		"killed by Control.Kill": func(d *badDay, _ *Conn) {
			if err := d.null.Kill("null0"); err != nil {
				d.t.Fatal(err)
			}
		},
		"killed at a post": func(d *badDay, a *Conn) {
			d.fault(nulldev.Fault{Kind: nulldev.Fatal, Call: "ibv_post_send", Count: 1})
			f, err := a.SendBytes(testContext(d.t), []byte("the last"))
			if err == nil {
				d.ends("the send at whose post the device failed", f, verbs.ErrDeviceRemoved)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newBadDay(t, Config{Reactors: 1})
			t.Cleanup(func() { // runs before the cleanups that close the runtimes, which need a working device
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
				t.Errorf("the outstanding receive ended with %v, want ErrDeviceRemoved", err)
			}
			d.isAll("the connection's error", a.Err(), verbs.ErrDeviceRemoved)
			if _, err := d.client.Dial(testContext(t), d.ln.Addr().String()); !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("Dial on the failed device returned %v, want ErrDeviceRemoved", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := d.client.Close(ctx); err != nil {
				t.Errorf("closing the runtime of the failed device: %v", err)
			}
			select {
			case <-b.Done():
			case <-testContext(t).Done():
				t.Error("the peer's end of the connection has not ended")
			}
		})
	}
}

// Rule: if the completion of an operation never comes, the operation ends at the peer timeout. If the
// device then does not flush the queue pair, the operation ends when the queue pair is destroyed. Stats
// counts the timeout and the operations that were not flushed, and no object is left. The same holds
// while the connection is being closed.
// Ensured by: reactor/loop_watchdog.go, runtime/conn_peertimeout.go, runtime/conn_teardown.go.
func TestNullMissingCompletion(t *testing.T) {
	for _, flushes := range []bool{true, false} {
		for _, closing := range []bool{true, false} {
			t.Run(fmt.Sprintf("device flushes %t, connection is being closed %t", flushes, closing), func(t *testing.T) {
				const asked = 500 * time.Millisecond
				d := newBadDay(t, Config{Reactors: 1, Conn: Options{PeerTimeout: asked, AckTimeout: time.Millisecond}})
				a, _ := d.connect()
				attr := must.Get(a.q.QP().Query())(t)
				bound := boundOf(attr.Timeout, attr.RetryCnt, asked)
				_, remote := d.target(64)
				d.adds(a, remote, 0, 3)
				missing := d.fault(nulldev.Fault{Kind: nulldev.Missing, Count: 1})
				if !flushes {
					d.fault(nulldev.Fault{Kind: nulldev.LateFlush})
				}
				from := time.Now() // read before Start, because the bound begins at the post, and Start may post
				f := must.Get(a.Start(testContext(t), new(FetchAndAddOp(remote, 1))))(t)
				if closing {
					if err := a.Close(testContext(t)); err != nil {
						t.Errorf("Close with an operation that does not complete returned %v, want nil", err)
					}
					d.ends("the operation without a completion", f, ErrConnClosed)
				} else {
					d.ends("the operation without a completion", f, ErrPeerTimeout)
					_, err := a.RecvWait(testContext(t))
					d.isAll("RecvWait", err, ErrPeerTimeout)
				}
				if took := time.Since(from); took < bound || took > anEighth(bound)+flushBound+lateEvents {
					t.Errorf("the operation ended after %v, want %v to %v", took, bound, anEighth(bound)+flushBound+lateEvents)
				}
				if d.null.Hits(missing) != 1 {
					t.Fatalf("the device dropped %d completions, want 1", d.null.Hits(missing))
				}
				if s := d.client.Stats(); s.PeerTimeouts != 1 || !flushes && s.Unflushed == 0 {
					t.Errorf("Stats.PeerTimeouts is %d, want 1; Stats.Unflushed is %d, want 1 or more if the device does not flush", s.PeerTimeouts, s.Unflushed)
				}
			})
		}
	}
}

// noticesRemoval checks that rt notices the removal of its device. Then p, which rt has prepared, ends with
// ErrDeviceRemoved, and Prepare returns ErrDeviceRemoved.
func noticesRemoval(t *testing.T, rt *Runtime, p *Prepared) {
	t.Helper()
	select {
	case <-p.c.Done():
		lost(t, "the Prepared", p.c.Err())
	case <-time.After(10 * time.Second):
		t.Error("the Prepared has not ended 10 s after its device was removed")
	}
	_, err := rt.Prepare(PlainOptions{})
	lost(t, "Runtime.Prepare", err)
}

// Rule: if a device is removed, its runtime ends the connections on every reactor, even if the
// connections have no connection manager identifiers and the device raises no asynchronous event.
func TestRuntimeWithoutIdentifiersIsToldOfARemoval(t *testing.T) {
	provider, null := nullDevice(t)
	rt := mustOpen(t, Config{Provider: provider, Device: "null0", Reactors: 2, NoCallerDriving: true, Spin: -1})
	other := mustOpen(t, Config{Provider: provider, Device: "null1"})
	ps := []*Prepared{prepare(t, rt, PlainOptions{}), prepare(t, rt, PlainOptions{})} // one on each reactor
	bystander := prepare(t, other, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		noticesRemoval(t, rt, p)
	}
	if err := bystander.c.Err(); err != nil {
		t.Errorf("a Prepared of another device ended with %v, want no error", err)
	}
}

// Rule: to watch for the removal of its device, a runtime binds a connection manager identifier to an
// address of the device. If the connection manager refuses an address, the runtime tries the device's
// next address. If the connection manager refuses all addresses, the runtime uses the device without
// watching for the removal.
func TestRemovalIsWatchedWhereAnAddressCanBeBound(t *testing.T) {
	provider, null := nullDevice(t)
	plan := &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt := mustOpen(t, Config{Provider: nth.Wrap(provider, plan), Device: "null0"})
	if _, refused := plan.Injected(); !refused || rt.shards[0].watch != nil {
		t.Fatalf("the address was refused: %v, want true; the watch is %v, want nil", refused, rt.shards[0].watch)
	}
	prepare(t, rt, PlainOptions{})
	plan = &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt = mustOpen(t, Config{Provider: twoAddresses{nth.Wrap(provider, plan)}, Device: "null0"})
	p := prepare(t, rt, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	noticesRemoval(t, rt, p)
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
