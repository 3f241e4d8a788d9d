package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: on the software RNIC, both ends may end one binding of a window, in any order. The message of the
// peer arrives, this end's Invalidate or Revoke succeeds, and the connection goes on. (The bug: the
// connection ended with REM_INV_REQ_ERR or LOC_QP_OP_ERR, and the message was lost although its sender's
// future said nil.)
func TestBothEndsEndAWindow(t *testing.T) {
	notOnDevice(t, "LOCAL_INV of a window that is free, which rdma_rxe's kernel does not survive (rxe_invalidate_mw)")
	const rounds = 50
	invalidate := func(w *Window) error {
		f, err := w.Invalidate(testContext(t))
		if errors.Is(err, ErrWindowState) {
			return nil // the peer's message has been received
		}
		if err == nil {
			_, err = f.Await(testContext(t))
		}
		return err
	}
	revoke := func(w *Window) error { return w.Revoke(testContext(t)) }
	for _, c := range []struct {
		name  string
		end   func(*Window) error
		first bool // this end has ended the binding when the peer sends
		again bool // and has bound the window again
		last  bool // the peer's message has been acknowledged when this end begins
	}{
		{name: "Invalidate at once", end: invalidate},
		{name: "Invalidate first", end: invalidate, first: true},
		{name: "Invalidate and Bind first", end: invalidate, first: true, again: true},
		{name: "Invalidate last", end: invalidate, last: true},
		{name: "Revoke at once", end: revoke},
		{name: "Revoke first", end: revoke, first: true},
		{name: "Revoke last", end: revoke, last: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connected(t, Config{Conn: Options{Windows: true}})
			ctx := testContext(t)
			r, w := opened(t, b, 64)
			for round := range rounds {
				if _, err := w.Remote(); errors.Is(err, ErrWindowClosed) {
					w = must.Get(b.NewWindow())(t)
				}
				at := bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
				if c.first {
					must.Do(t, c.end(w))
				}
				if c.again {
					bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
				}
				note := bufferOf(t, a.rt, []byte{byte(round), 1})
				sent, err := a.Start(ctx, new(SendInvalidateOp(note.Slice(), at)))
				if err != nil {
					t.Fatalf("round %d: starting the peer's message: %v", round, err)
				}
				if c.last {
					done(t, sent, nil)
				}
				if !c.first {
					if err := c.end(w); err != nil {
						t.Fatalf("round %d: this end's end of the binding: %v, want nil", round, err)
					}
				}
				if !c.last {
					done(t, sent, nil)
				}
				m, err := b.RecvWait(ctx)
				if err != nil {
					t.Fatalf("round %d: the peer's message was sent, but Recv returned %v", round, err)
				}
				if m.Data[0] != byte(round) {
					t.Fatalf("round %d: the message of round %d arrived", round, m.Data[0])
				}
				must.Do(t, m.Release())
				if c.again {
					if _, err := w.Remote(); err != nil {
						t.Fatalf("round %d: the message with the key of an earlier binding ended the new one: %v", round, err)
					}
					must.Do(t, c.end(w))
				}
			}
			if a.Err() != nil || b.Err() != nil {
				t.Errorf("the connection ended: %v, %v", a.Err(), b.Err())
			}
			must.Do(t, w.Close())
			must.Do(t, r.Close())
		})
	}
}

// Rule: a message with the key of the binding before, which arrives while a new binding is being started,
// does not end the new binding. (Since the software RNIC delivers such messages, one may arrive between the
// change of the window's state and that of its key.)
func TestLateReturnLeavesTheNewBinding(t *testing.T) {
	notOnDevice(t, "windows that both ends end, which rdma_rxe's kernel does not survive (rxe_invalidate_mw)")
	_, b := connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 64)
	before := bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
	f, err := w.Invalidate(testContext(t))
	done(t, f, err)
	part := must.Get(r.Slice(0, 64))(t) // Bind, in its steps
	must.Do(t, part.begin())
	must.Get(w.move(windowFree, windowBinding, part.lease))(t)
	if !w.keyInvalidated(before.RKey) { // the message arrives
		t.Error("the window does not know the key of its last binding")
	}
	at := Remote{Addr: part.addr, Length: 64, RKey: verbs.IncRKey(before.RKey), Access: verbs.AccessRemoteWrite}
	f, err = w.post(nil, windowBound, windowFree, &reactor.Send{
		Opcode: verbs.WRBindMW,
		Bind:   &reactor.Bind{Window: w.mw, Region: part.lease.home.registration(), RKey: at.RKey, Addr: at.Addr, Length: at.Length, Access: at.Access},
	}, at, submitOpts{})
	done(t, f, err)
	if _, err := w.Remote(); err != nil {
		t.Errorf("the new binding: %v, want bound", err)
	}
	// An invalidation that fails leaves a window free whose key the peer has invalidated meanwhile.
	must.Get(w.move(windowBound, windowUnbinding, nil))(t)
	w.keyInvalidated(w.at.RKey)
	w.mu.Lock()
	w.leave(windowBound)
	state := w.state
	w.mu.Unlock()
	if state != windowFree {
		t.Errorf("after the failed invalidation the window is %s, want %s", windowStates[state], windowStates[windowFree])
	}
	must.Do(t, w.Close())
	must.Do(t, r.Close())
}
