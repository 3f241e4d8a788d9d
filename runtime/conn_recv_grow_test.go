package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a peer that ignores a recall keeps its credits while no connection needs them. If another one needs
// receives, the connection fails after recallBound looks.
func TestPeerThatIgnoresARecallFailsWhenOthersNeedReceives(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	flood(t, a, b, 1000)
	checkWindow(t, a, b, 0)
	held(t, b, func() {
		b.recalls = recalls{seen: b.messages(), asked: 2} // as after a Recall that the peer does not answer
		for range 2 * recallBound {
			b.pool.tick()
		}
	})
	if err := b.Err(); err != nil {
		t.Fatalf("the connection failed although no other needs receives: %v", err)
	}
	held(t, b, func() {
		b.pool.denied = true
		b.pool.tick()
	})
	mistake(t, "ignoring a recall", b.Err(), ErrPeerProtocol, "30s")
}

// Rule: if the program takes no messages, the peer can send unreadWindow of them, and no more. This holds
// for SENDs and for WRITEs with immediate data, which have no header.
func TestUnreadMessagesKeepTheWindowSmall(t *testing.T) {
	for name, write := range map[string]bool{"SEND": false, "WRITE with immediate": true} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, Config{})
			needsPools(t, b)
			ctx := testContext(t)
			region := must.Get(b.rt.NewRegion(64, allAccess))(t)
			defer region.Close()
			buf := must.Get(a.rt.Alloc(8))(t)
			defer buf.Release()
			op := SendBytesOp([]byte("unread"))
			if write {
				op = WriteOp(buf.Slice(), must.Get(region.Remote(0, 8))(t)).Imm(7)
			}
			for range unreadWindow {
				f := must.Get(a.Start(ctx, &op))(t)
				f.Discard()
			}
			eventually(t, "the messages to arrive", func() (all bool) { held(t, b, func() { all = b.arrivals == unreadWindow }); return all })
			held(t, b, func() {}) // whatever the last message has caused was done
			if err := a.TryStartTo(&op, nothing{}, 0); !errors.Is(err, ErrNoCredit) {
				t.Errorf("a message after %d that nobody took: %v, want %v", unreadWindow, err, ErrNoCredit)
			}
		})
	}
}

// Rule: a peer whose credits were recalled while the program holds messages still gets a credit, and when
// the program takes the next message and waits, the peer can send.
func TestRecallLeavesThePeerACredit(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	ctx := testContext(t)
	flood(t, a, b, 500)
	checkWindow(t, a, b, 0)
	kept := sendAndTake(t, a, b, 2)
	for range 3 { // the first look finds new messages, the second recalls, the third finds an idle connection
		held(t, b, b.pool.tick)
		eventually(t, "the answer to a recall", func() (over bool) {
			held(t, b, func() { over = b.recalls.asked == 0 || b.recalls.ignored > 0 })
			return over
		})
	}
	sent := make(chan error, 1)
	go func() {
		f, err := a.SendBytes(ctx, []byte("after the recall"))
		f.Discard()
		sent <- err
	}()
	m, err := b.RecvWait(ctx)
	if err != nil {
		t.Fatalf("a message after the recall: %v (sending it: %v)", err, <-sent)
	}
	release(t, append(kept, m)...)
	checkWindow(t, a, b, 0)
}

// Rule: what a window still waits for is part of its next growth, and does not come in addition. (TestSimulation
// found a peer that was granted 386 credits of at most 256.)
func TestAWindowGrowsOnceByWhatItWaitedFor(t *testing.T) {
	a, b := connected(t, Config{})
	needsPools(t, b)
	p := b.pool
	eventually(t, "no goroutine to make receives", func() bool { return p.growing.CompareAndSwap(false, true) }) // none begins now
	held(t, b, func() {
		for p.free.Load() > 0 { // others have taken all
			p.reserve(1)
		}
		before := b.window.Load()
		p.extend(b, 100) // waits
		p.free.Add(200)
		p.extend(b, 50)
		p.serveWanting()
		if grown := b.window.Load() - before; grown != 50 {
			t.Errorf("the window has grown by %d, want 50", grown)
		}
	})
	a.Abort() // the counts of the pool are wrong now
	b.Abort()
}
