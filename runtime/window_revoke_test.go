package runtime

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: when Revoke returns the window's key is dead, for good, and the region can go.
// It waits for a binding under way, also for one that stands in a batch.
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
			a, b := d.connected(t, Config{})
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
				t.Errorf("closing the region behind the window: %v", err)
			}
			_, err = w.Invalidate(testContext(t))
			mistake(t, "using a window that was revoked", err, ErrWindowClosed)
			if at.Length == 0 {
				return
			}
			src := bufferOf(t, a.rt, []byte("too late"))
			if f, err = a.Write(testContext(t), src.Slice(), at); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Await(testContext(t)); !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
				t.Errorf("writing with a dead key: %v, want %v", err, verbs.WCRemAccessErr)
			}
		})
	}
}

// Rule: with a peer that does not answer an invalidation stands behind a READ. Revoke of
// another window does not; of this one it ends with its context, and can be asked again.
func TestRevokeWaitsForNoPeer(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	r, w := opened(t, b, 64)
	bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
	_, other := opened(t, b, 64)
	bound(t, other, r, 0, 64, verbs.AccessRemoteWrite)
	far, err := a.rt.NewRegion(64, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := far.Remote(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	if _, err := b.Read(testContext(t), bufferOf(t, b.rt, make([]byte, 64)).Slice(), remote); err != nil {
		t.Fatal(err)
	}
	shut, err := other.Invalidate(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Revoke(testContext(t)); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if !shut.Settled() { // else LOCAL_INV overtakes here, and there is nothing to wait for
		err := other.Revoke(ended)
		mistake(t, "revoking while the invalidation waits for the peer", err, context.DeadlineExceeded, "being invalidated")
	}
	if err := b.Cancel(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := other.Revoke(testContext(t)); err != nil {
		t.Errorf("revoking after Cancel: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing the region behind its windows: %v", err)
	}
}

// Rule: a WRITE of many packets that is half way through a window when it is revoked
// writes nothing afterwards.
func TestRevokeStopsAWriteHalfWay(t *testing.T) {
	const size = 4 * simMsgSize
	p := newLostPeer(t, Options{})
	r, err := p.b.rt.NewRegion(size, windowAccess)
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.b.NewWindow()
	if err != nil {
		t.Fatal(err)
	}
	at, f, err := w.Bind(p.w.ended, r, 0, size, verbs.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.pass(time.Millisecond)
	done(t, f, nil)
	src, err := p.a.rt.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range src.Bytes() {
		src.Bytes()[i] = 0xda
	}
	p.w.fab.SetLink(p.w.nodes[0].gid, p.w.nodes[1].gid, fabric.Link{Rules: []fabric.Rule{{From: 2, Delay: 20 * time.Millisecond}}})
	write, err := p.a.Write(p.w.ended, src.Slice(), at)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; r.Bytes()[0] == 0 && n < 100; n++ {
		p.pass(100 * time.Microsecond)
	}
	if r.Bytes()[0] == 0 || r.Bytes()[size-1] != 0 {
		t.Fatalf("the WRITE is not half way: first byte %#x, last %#x", r.Bytes()[0], r.Bytes()[size-1])
	}
	if err := w.Revoke(p.w.ended); err != nil {
		t.Fatal(err)
	}
	mine := bytes.Repeat([]byte{0x11}, size)
	copy(r.Bytes(), mine)
	p.pass(2 * time.Second)
	if !bytes.Equal(r.Bytes(), mine) {
		t.Error("the WRITE went on after Revoke")
	}
	if _, err, ok := write.Poll(); !ok || !errors.Is(err, verbs.StatusError(verbs.WCRemAccessErr)) {
		t.Errorf("the WRITE ended with %v (%v), want %v", err, ok, verbs.WCRemAccessErr)
	}
	if err := src.Release(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: from the call of Revoke on nothing is bound, also when it ends with its context.
func TestNothingIsBoundWhileAWindowIsRevoked(t *testing.T) {
	_, b := connected(t, Config{})
	r, w := opened(t, b, 64)
	w.revoked() // what Revoke does first
	_, _, err := w.Bind(testContext(t), r, 0, 8, verbs.AccessRemoteRead)
	mistake(t, "binding a window that is being revoked", err, ErrWindowClosed)
	if err := w.Revoke(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
