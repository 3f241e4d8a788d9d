package runtime

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

const windowAccess = verbs.AccessLocalWrite | verbs.AccessMWBind

// opened() returns a region of n bytes, to which windows can be bound, and a new window of b.
func opened(t *testing.T, b *Conn, n int) (*Region, *Window) {
	t.Helper()
	r := must.Get(b.rt.NewRegion(n, windowAccess))(t)
	w := must.Get(b.NewWindow())(t)
	return r, w
}

// bound() binds w to a range of r, waits for the binding, and returns the descriptor.
func bound(t *testing.T, w *Window, r *Region, off, n int, access verbs.AccessFlags) Remote {
	t.Helper()
	at, f, err := w.Bind(testContext(t), r, off, n, access)
	done(t, f, err)
	return at
}

func bufferOf(t *testing.T, rt *Runtime, b []byte) Buffer {
	t.Helper()
	buf := must.Get(rt.Alloc(len(b)))(t)
	copy(buf.Bytes(), b)
	t.Cleanup(func() { _ = buf.Release() })
	return buf
}

// Rule: a window opens its range, and no other memory, to the peer of its connection. Each binding
// has a new key.
func TestWindowOpensItsRange(t *testing.T) { onBeds(t, windowOpensItsRange) }

func windowOpensItsRange(t *testing.T, d bed) {
	a, b := d.connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 4096)
	at := bound(t, w, r, 1024, 512, verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
	data := bytes.Repeat([]byte("verbena!"), 64)
	src := bufferOf(t, a.rt, data)
	f, err := a.Write(testContext(t), src.Slice(), at)
	done(t, f, err)
	if !bytes.Equal(r.Bytes()[1024:1536], data) || r.Bytes()[1023] != 0 || r.Bytes()[1536] != 0 {
		t.Error("the WRITE did not write exactly the 512 bytes of the window, from offset 1024 of the region")
	}
	f, err = w.Invalidate(testContext(t))
	done(t, f, err)
	again := bound(t, w, r, 0, 64, verbs.AccessRemoteRead)
	if again.RKey == at.RKey {
		t.Errorf("both bindings of the window have the key 0x%x, want different keys", at.RKey)
	}
	back := bufferOf(t, a.rt, make([]byte, 64))
	f, err = a.Read(testContext(t), back.Slice(), again)
	done(t, f, err)
	_, err = a.Write(testContext(t), src.Slice(), again)
	mistake(t, "a WRITE of 512 bytes through a window of 64 bytes", err, ErrRemoteRange)
	small := must.Get(src.Slice().Sub(0, 8))(t)
	_, err = a.Write(testContext(t), small, again)
	mistake(t, "a WRITE through a window that permits only READs", err, ErrPermission)
}

// Rule: a WRITE with the key of an invalidated window fails with REM_ACCESS_ERR and writes nothing.
func TestInvalidatedWindowIsShut(t *testing.T) { onBeds(t, invalidatedWindowIsShut) }

func invalidatedWindowIsShut(t *testing.T, d bed) {
	a, b := d.connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 64)
	at := bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
	f, err := w.Invalidate(testContext(t))
	done(t, f, err)
	src := bufferOf(t, a.rt, []byte("too late"))
	f = must.Get(a.Write(testContext(t), src.Slice(), at))(t)
	if _, err := f.Await(testContext(t)); !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
		t.Errorf("a WRITE with the key of an invalidated window ended with %v, want %v", err, verbs.WCRemAccessErr)
	}
	if r.Bytes()[0] != 0 {
		t.Error("the WRITE with the key of an invalidated window changed the region")
	}
}

// Rule: if a message of the peer invalidates a window, Message.Invalidated is this window, and the
// window can be bound again.
func TestPeerShutsWindow(t *testing.T) { onBeds(t, peerShutsWindow) }

func peerShutsWindow(t *testing.T, d bed) {
	a, b := d.connected(t, Config{Conn: Options{Windows: true}})
	ctx := testContext(t)
	r, w := opened(t, b, 64)
	for round := range 20 {
		at, f, err := w.Bind(ctx, r, 0, 64, verbs.AccessRemoteWrite)
		if err != nil {
			t.Fatalf("round %d: Bind: %v", round, err)
		}
		// Do not wait for the binding. The device completes the binding before it sends the next
		// message.
		text := must.Get(at.MarshalText())(t)
		sent, err := b.SendBytes(ctx, text)
		done(t, sent, err)
		m := must.Get(a.RecvWait(ctx))(t)
		var got Remote
		if err := got.UnmarshalText(m.Data); err != nil {
			t.Fatal(err)
		}
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
		src := bufferOf(t, a.rt, []byte{byte(round), 1})
		wrote := must.Get(a.Write(ctx, src.Slice(), got))(t)
		shut, err := a.Start(ctx, new(SendInvalidateOp(src.Slice(), got)))
		done(t, shut, err)
		done(t, wrote, nil)
		m = must.Get(b.RecvWait(ctx))(t)
		if m.Invalidated != w || m.Data[0] != byte(round) || r.Bytes()[0] != byte(round) {
			t.Fatalf("round %d: the message % x invalidated %p, want %p; the first byte of the message and of the region (0x%02x) must be the number of the round", round, m.Data, m.Invalidated, w, r.Bytes()[0])
		}
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
		done(t, f, nil)
	}
}

// Rule: if a window is used wrongly, the call returns an error, and the connection does not fail.
func TestWindowMistakes(t *testing.T) {
	_, b := connected(t, Config{Conn: Options{Windows: true}})
	ctx := testContext(t)
	r, w := opened(t, b, 64)
	plain, err := b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Invalidate(ctx)
	mistake(t, "invalidating a window that is not bound", err, ErrWindowState, "free")
	_, _, err = w.Bind(ctx, plain, 0, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a window to a region without MW_BIND", err, ErrPermission, "MW_BIND")
	_, _, err = w.Bind(ctx, r, 60, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a window to a range outside the region", err, ErrRange, "60")
	_, _, err = w.Bind(ctx, r, 0, 0, verbs.AccessRemoteRead)
	mistake(t, "binding a window to 0 bytes", err, verbs.ErrInvalid)
	_, _, err = w.Bind(ctx, r, 0, 8, verbs.AccessLocalWrite)
	mistake(t, "binding a window without access for the peer", err, verbs.ErrInvalid, "LOCAL_WRITE")
	bound(t, w, r, 0, 8, verbs.AccessRemoteRead)
	_, _, err = w.Bind(ctx, r, 0, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a window that is bound", err, ErrWindowState, "bound")
	if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a region to which a window is bound: %v, want %v", err, verbs.ErrBusy)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	_, _, err = w.Bind(ctx, r, 0, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a closed window", err, ErrWindowClosed)
	if err := r.Close(); err != nil {
		t.Errorf("closing the region after its window was closed: %v, want nil", err)
	}
}

// Rule: if a connection ends, its windows are closed, in whatever state the windows are. Then the region
// of the windows can be closed.
func TestWindowsEndWithTheirConnection(t *testing.T) { onBeds(t, windowsEndWithTheirConnection) }

func windowsEndWithTheirConnection(t *testing.T, d bed) {
	_, b := d.connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 64)
	bound(t, w, r, 0, 64, verbs.AccessRemoteRead)
	_, half := opened(t, b, 64)
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, f, err := half.Bind(ended, r, 0, 8, verbs.AccessRemoteRead); err == nil {
		f.Discard()
	}
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if n := b.rt.dev.Objects().MW; n != 0 {
		t.Errorf("after Close, %d memory windows of the device are left, want 0", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.NewWindow(); !errors.Is(err, ErrConnClosed) {
		t.Errorf("NewWindow on a closed connection: %v, want %v", err, ErrConnClosed)
	}
}

// Rule: after Revoke has returned nil, the window's key is invalid for ever, and the region can be
// closed. If a binding is outstanding, Revoke waits for the binding, even if the binding was started in a
// Batch.
func TestRevokeShutsAWindow(t *testing.T) { onBeds(t, revokeShutsAWindow) }

func revokeShutsAWindow(t *testing.T, d bed) {
	for name, bind := range map[string]func(*Conn, *Window, *Region) (Remote, Future, error){
		"bound": func(b *Conn, w *Window, r *Region) (Remote, Future, error) {
			at, f, err := w.Bind(testContext(t), r, 0, 64, verbs.AccessRemoteWrite)
			done(t, f, err)
			return at, Future{}, err
		},
		"being bound": func(b *Conn, w *Window, r *Region) (Remote, Future, error) {
			return w.Bind(testContext(t), r, 0, 64, verbs.AccessRemoteWrite)
		},
		"in a batch": func(b *Conn, w *Window, r *Region) (Remote, Future, error) {
			op := BindOp(w, r, 0, 64, verbs.AccessRemoteWrite)
			f, err := b.Batch().Start(testContext(t), &op)
			return w.at, f, err
		},
		"free": func(*Conn, *Window, *Region) (Remote, Future, error) { return Remote{}, Future{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := d.connected(t, Config{Conn: Options{Windows: true}})
			r, w := opened(t, b, 64)
			at, f, err := bind(b, w, r)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := w.Revoke(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
			if f.Valid() {
				done(t, f, nil)
			}
			if err := r.Close(); err != nil {
				t.Errorf("closing the region after its window was revoked: %v, want nil", err)
			}
			_, err = w.Invalidate(testContext(t))
			mistake(t, "invalidating a window that was revoked", err, ErrWindowClosed)
			if at.Length == 0 {
				return
			}
			src := bufferOf(t, a.rt, []byte("too late"))
			f = must.Get(a.Write(testContext(t), src.Slice(), at))(t)
			if _, err := f.Await(testContext(t)); !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
				t.Errorf("a WRITE with the key of a revoked window ended with %v, want %v", err, verbs.WCRemAccessErr)
			}
		})
	}
}

// Rule: if a window is bound, Revoke does not wait for a peer that does not answer. If an invalidation
// of the window waits behind a READ from that peer, Revoke waits for the invalidation, at most until the
// context of Revoke ends. Then Revoke can be called again.
func TestRevokeWaitsForNoPeer(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	r, w := opened(t, b, 64)
	bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
	_, other := opened(t, b, 64)
	bound(t, other, r, 0, 64, verbs.AccessRemoteWrite)
	far := must.Get(a.rt.NewRegion(64, allAccess))(t)
	remote := must.Get(far.Remote(0, 64))(t)
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	if _, err := b.Read(testContext(t), bufferOf(t, b.rt, make([]byte, 64)).Slice(), remote); err != nil {
		t.Fatal(err)
	}
	shut := must.Get(other.Invalidate(testContext(t)))(t)
	if err := w.Revoke(testContext(t)); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if !shut.Settled() { // otherwise the invalidation has completed before the READ, and Revoke does not wait
		err := other.Revoke(ended)
		mistake(t, "revoking while the invalidation waits for the peer", err, context.DeadlineExceeded, "being invalidated")
	}
	if err := b.Cancel(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := other.Revoke(testContext(t)); err != nil {
		t.Errorf("revoking after Cancel: %v, want nil", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region after its windows were revoked: %v, want nil", err)
	}
}

// Rule: if a window is revoked while only some packets of a WRITE have arrived, the WRITE writes nothing
// after Revoke has returned.
func TestRevokeStopsAWriteHalfWay(t *testing.T) {
	const size = 4 * simMsgSize
	p := newLostPeer(t, Options{})
	r := must.Get(p.b.rt.NewRegion(size, windowAccess))(t)
	w := must.Get(p.b.NewWindow())(t)
	at, f, err := w.Bind(p.w.ended, r, 0, size, verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.pass(time.Millisecond)
	done(t, f, nil)
	src := must.Get(p.a.rt.Alloc(size))(t)
	for i := range src.Bytes() {
		src.Bytes()[i] = 0xda
	}
	// The first packet from a to b arrives at once. All later packets are delayed by 20 ms.
	p.w.fab.SetLink(p.w.nodes[0].gid, p.w.nodes[1].gid, fabric.Link{Rules: []fabric.Rule{{From: 2, Delay: 20 * time.Millisecond}}})
	write := must.Get(p.a.Write(p.w.ended, src.Slice(), at))(t)
	for n := 0; r.Bytes()[0] == 0 && n < 100; n++ {
		p.pass(100 * time.Microsecond)
	}
	if r.Bytes()[0] == 0 || r.Bytes()[size-1] != 0 {
		t.Fatalf("before Revoke, the first byte of the region is %#x, want 0xda; the last byte is %#x, want 0", r.Bytes()[0], r.Bytes()[size-1])
	}
	if err := w.Revoke(p.w.ended); err != nil {
		t.Fatal(err)
	}
	mine := bytes.Repeat([]byte{0x11}, size)
	copy(r.Bytes(), mine)
	p.pass(2 * time.Second)
	if !bytes.Equal(r.Bytes(), mine) {
		t.Error("the WRITE changed the region after Revoke had returned")
	}
	if _, err, ok := write.Poll(); !ok || !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
		t.Errorf("the WRITE ended with %v (settled %t), want %v", err, ok, verbs.WCRemAccessErr)
	}
	if err := src.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: after Revoke was called, Bind fails. This holds even if Revoke has returned the error of its
// context.
func TestNothingIsBoundWhileAWindowIsRevoked(t *testing.T) {
	_, b := connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 64)
	w.revoked() // the first step of Revoke
	_, _, err := w.Bind(testContext(t), r, 0, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a window that is being revoked", err, ErrWindowClosed)
	if err := w.Revoke(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: a binding is made once, even if the device sends an earlier message again.
func TestABindingBehindAResendIsMadeOnce(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{Conn: Options{Raw: true, Windows: true}})
		ctx := testContext(t)
		r, w := opened(t, b, 64)
		here, there := bufferOf(t, a.rt, make([]byte, 64)).Slice(), bufferOf(t, b.rt, make([]byte, 64)).Slice()
		for range 2 { // the first binding of a window, and another
			first := must.Get(b.Send(ctx, there))(t)
			at, binding, err := w.Bind(ctx, r, 0, 64, verbs.AccessRemoteRead)
			must.Do(t, err)
			second := must.Get(b.Send(ctx, there))(t)
			// As long as a has no receive, b's device sends the first message again. The other direction works.
			for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
				got := must.Get(b.PostRecv(there))(t)
				f, err := a.Send(ctx, here)
				done(t, f, err)
				done(t, got, nil)
			}
			for _, of := range []Future{must.Get(a.PostRecv(here))(t), must.Get(a.PostRecv(here))(t), first, binding, second} {
				done(t, of, nil)
			}
			f, err := a.Read(ctx, here, at)
			done(t, f, err)
			f, err = w.Invalidate(ctx)
			done(t, f, err)
		}
	})
}
