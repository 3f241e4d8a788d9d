package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// forge sends a frame of the peer's choice on c, n times.
func forge(t *testing.T, c *Conn, f proto.Frame, s reactor.Send, n int) {
	t.Helper()
	var head [frameSize]byte
	f.Encode(&head)
	held(t, c, func() {
		for range n {
			s := s
			s.Sink = nothing{}
			if _, err := c.q.Submit(context.Background(), &s, &reactor.Payload{Inline: head[:]}, reactor.NonBlock); err != nil {
				t.Errorf("submitting the SEND: %v", err)
			}
		}
	})
}

// ends waits until c has ended, and checks that its peer has broken the protocol.
func ends(t *testing.T, what string, c *Conn, says string) {
	t.Helper()
	select {
	case <-c.Done():
		mistake(t, what, c.Err(), ErrPeerProtocol, says)
	case <-testContext(t).Done():
		t.Fatalf("%s does not end the connection", what)
	}
}

// Rule: an idle window is recalled although this end has no credit. (The bug: the Recall needed one, so the peer was
// neither recalled nor failed.)
func TestAnIdlePeerIsRecalledWithoutACredit(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	eventually(t, "the credits of b to be used", func() bool { // a's program takes nothing
		op := SendBytesOp([]byte("unread"))
		return errors.Is(b.TryStartTo(&op, nothing{}, 0), ErrNoCredit) && a.window.Load() >= unreadWindow
	})
	flood(t, a, b, 2000)
	if w := b.window.Load(); w < 4 {
		t.Fatalf("the window is %d, want 4 or more", w)
	}
	eventually(t, "the window to shrink", func() bool {
		held(t, b, func() {
			if b.recalls.asked == 0 { // otherwise the looks would come faster than the peer's answer, and fail it
				b.pool.denied = true
				b.pool.tick()
			}
		})
		return b.window.Load() == 1
	})
	if err := b.Err(); err != nil {
		t.Errorf("the connection ended with %v", err)
	}
}

// Rule: a peer that cannot answer a Recall, because it has no credit, is not failed for that, and answers with the first
// credit that it gets.
func TestARecallIsAnsweredWithTheNextCredit(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	kept := sendAndTake(t, a, b, 1)
	held(t, b, func() { b.recalls.asked = 5 }) // as if it had recalled them; a may answer from now on
	held(t, a, func() {
		if n := a.credits.take(poolWindow); n > 0 { // they are in use
			defer a.credits.restore(uint32(n))
		}
		must.Do(t, a.recalled(5))
		if a.recallOwed != 5 {
			t.Errorf("without a credit %d credits are owed, want 5", a.recallOwed)
		}
	})
	release(t, kept...)
	flood(t, a, b, 100)
	eventually(t, "the Return", func() (ok bool) { held(t, b, func() { ok = b.recalls.asked == 0 }); return ok })
	if err := errors.Join(a.Err(), b.Err()); err != nil {
		t.Error(err)
	}
}

// Rule: a peer that sends more Recalls or Returns than it may ends its own connection, and no other of the same pool.
// The pool has all receives back.
func TestControlFramesBeyondTheirReceivesEndOneConnection(t *testing.T) {
	ra, rb := mainBed.open(t, Config{}, 0), mainBed.open(t, Config{}, 1)
	ln := must.Get(rb.Listen(":0"))(t)
	as, bs := connections(t, ra, ln, 3)
	needsPools(t, bs[0])
	flood(t, as[0], bs[0], 500)
	held(t, bs[1], func() { bs[1].credits.take(1) }) // so that it cannot answer the first Recall
	forge(t, as[1], proto.Frame{Kind: proto.Recall, Number: 1}, reactor.Send{Opcode: verbs.WRSend}, 30)
	ends(t, "a Recall before the Return", bs[1], "Recall")
	forge(t, as[2], proto.Frame{Kind: proto.Return}, reactor.Send{Opcode: verbs.WRSend}, 30)
	ends(t, "a Return that was not asked for", bs[2], "not recalled")
	flood(t, as[0], bs[0], 500)
	for _, c := range []*Conn{as[1], as[2], bs[1], bs[2]} {
		must.Do(t, c.Close(testContext(t)))
	}
	eventually(t, "the connections to leave the pool", func() bool { return bs[0].pool.members.Load() == 1 })
	checkWindow(t, as[0], bs[0], 0)
	checkPool(t, bs[0].pool, bs[0])
}

// Rule: frames that are no messages, and answers that no Call waits for, do not count as messages that the program has
// taken: the window of an unread connection stays at unreadWindow.
func TestDroppedAnswersAreNoMessagesTaken(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	ctx := testContext(t)
	for i := range uint32(300) {
		answerTo(t, a, i+1, "never asked")
	}
	for range unreadWindow {
		must.Get(a.SendBytes(ctx, []byte("unread")))(t).Discard()
	}
	eventually(t, "the messages to arrive", func() (ok bool) { held(t, b, func() { ok = b.messages() == unreadWindow }); return ok })
	held(t, b, func() {
		if w := b.window.Load(); w > unreadWindow {
			t.Errorf("the window is %d, want at most %d", w, unreadWindow)
		}
	})
}

// Rule: a control frame that invalidates a key is a violation, and the window that the device has shut says so.
func TestAControlFrameThatInvalidatesEndsTheConnection(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{Windows: true}})
	r, w := opened(t, b, 64)
	at := bound(t, w, r, 0, 64, verbs.AccessRemoteWrite)
	forge(t, a, proto.Frame{Kind: proto.Credit, Credits: 1}, reactor.Send{Opcode: verbs.WRSendWithInv, Invalidate: at.RKey}, 1)
	ends(t, "a Credit frame that invalidates", b, "control frame")
	if _, err := w.Remote(); err == nil {
		t.Error("Remote says that the window is bound; the device has shut it")
	}
}

// Rule: after close no grant makes an allowance positive. (The bug: 257 grants did.)
func TestGrantsDoNotReopenAnAllowance(t *testing.T) {
	a := newAllowance(3, 1<<30)
	a.close()
	for range 1 << 12 {
		if !a.restore(1 << 30) {
			t.Fatal("a grant within what was announced was refused")
		}
	}
	if a.restore(1<<30 + 1) {
		t.Error("a grant beyond what was announced was taken")
	}
	if n := a.take(1); n != 0 || a.available() != 0 {
		t.Errorf("take returned %d after close, and %d are available; want 0", n, a.available())
	}
}
