package runtime

import (
	"context"
	stdruntime "runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// sendAndTake sends n messages from a and receives them at b. The caller must release the
// messages.
func sendAndTake(t *testing.T, a, b *Conn, n int) (ms []Message) {
	t.Helper()
	for i := range n {
		f, err := a.SendBytes(testContext(t), []byte{byte(i)})
		done(t, f, err)
	}
	for range n {
		m := must.Get(b.RecvWait(testContext(t)))(t)
		ms = append(ms, m)
	}
	return ms
}

func release(t *testing.T, ms ...Message) {
	t.Helper()
	for _, m := range ms {
		if err := m.Release(); err != nil {
			t.Errorf("releasing a message: %v", err)
		}
	}
}

// Rule: if the program holds the messages of all receives but one, Recv still gets the next message,
// because the credit of the free receive is returned to the peer.
func TestOneFreeReceiveIsEnough(t *testing.T) {
	for _, releaseFirst := range []bool{true, false} {
		a, b := connected(t, Config{Conn: Options{RecvCredits: 4}})
		ctx := testContext(t)
		ms := sendAndTake(t, a, b, 4)
		for i := range 20 { // one message at a time: each release returns one credit
			if releaseFirst {
				release(t, ms[3])
			}
			f := b.Recv()
			if !releaseFirst {
				if err := b.sh.r.Do(ctx, b.match); err != nil { // f waits for a message before ms[3] is released
					t.Fatal(err)
				}
				release(t, ms[3])
			}
			if _, err := a.SendBytes(ctx, []byte{byte(i)}); err != nil {
				t.Fatalf("sending message %d while the peer holds 3 of its 4 receives: %v, want no error", i, err)
			}
			m, err := f.Await(ctx)
			if err != nil || m.Data[0] != byte(i) {
				t.Fatalf("receiving message %d: got %v, %v; want [%d]", i, m.Data, err, byte(i))
			}
			ms[3] = m
		}
		release(t, ms...)
	}
}

// Rule: if no Recv waits, a credit update is sent only when at least half of all credits are
// unreturned. (A credit is unreturned from the release of its receive until a frame returns the
// credit to the peer.)
func TestUpdatesAreFewWhileNobodyWaits(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 8}})
	before := b.rt.Stats().WorkRequests
	ms := sendAndTake(t, a, b, 8)
	release(t, ms[:3]...)
	if err := b.sh.r.Do(testContext(t), b.sendCreditUpdate); err != nil {
		t.Fatal(err)
	}
	if n := b.ledger.unreturned(); n != 3 {
		t.Errorf("3 of 8 receives were released: %d credits are unreturned, want 3", n)
	}
	release(t, ms[3:]...)
	if err := b.sh.r.Do(testContext(t), func() {}); err != nil {
		t.Fatal(err)
	}
	if n := b.rt.Stats().WorkRequests - before; n > 2 {
		t.Errorf("%d credit updates were sent to return 8 credits, want at most 2", n)
	}
}

// Rule: if a message that carries credits to the peer is not posted, a later credit update returns
// these credits.
func TestCreditsOfAFailedSendAreTold(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p, Conn: Options{RecvCredits: 2, SendDepth: 1}})
	ctx := testContext(t)
	region := must.Get(a.rt.NewRegion(4096, allAccess))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 64))(t)
	buf := must.Get(b.rt.Alloc(64))(t)
	defer buf.Release()
	ms := sendAndTake(t, a, b, 2)
	link.SetAll(fabric.Link{Down: true})
	w, err := b.Write(ctx, buf.Slice(), remote) // now b's send queue is full
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	sent := make(chan error, 1)
	if err := b.sh.r.Do(ctx, func() {
		// While this function holds the turn, no credit update is sent. So the message of SendBytes takes
		// the credits of the released receives.
		release(t, ms...)
		go func() {
			_, err := b.SendBytes(short, []byte("x"))
			sent <- err
		}()
		for b.ledger.unreturned() != 0 {
			stdruntime.Gosched() // a busy wait: there is no signal when the message has taken the credits
		}
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-sent; err == nil {
		t.Fatal("SendBytes succeeded while the send queue was full, want an error")
	}
	link.SetAll(fabric.Link{})
	done(t, w, nil)
	if _, err := a.SendBytes(ctx, []byte("y")); err != nil {
		t.Errorf("sending a message after the peer has released all its receives: %v, want no error", err)
	}
}

// Rule: if a credit update finds no free slot in the send queue, a later update returns its credits.
func TestCreditsOfAnUpdateWithoutRoomAreTold(t *testing.T) {
	const credits = 4
	a, b := connected(t, Config{Conn: Options{RecvCredits: credits}})
	ms := sendAndTake(t, a, b, credits)
	var kept int
	if err := b.sh.r.Do(testContext(t), func() {
		// Take all slots that a credit update could use.
		for b.q.PostControl(&reactor.Send{Opcode: verbs.WRRDMAWrite, Sink: (*connSink)(b)}, reactor.Payload{}) == nil {
		}
		release(t, ms...)
		b.sendCreditUpdate()
		kept = b.ledger.unreturned()
	}); err != nil {
		t.Fatal(err)
	}
	if kept != credits {
		t.Fatalf("a credit update found no free slot: %d credits are unreturned, want %d", kept, credits)
	}
	release(t, sendAndTake(t, a, b, credits)...)
}

// Rule: if a credit update arrives while Close waits for outstanding operations, Close still waits
// until these operations have completed.
func TestCreditUpdateDuringCloseHarmsNothing(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p, Conn: Options{RecvCredits: 4}})
	ctx := testContext(t)
	region := must.Get(b.rt.NewRegion(1<<20, allAccess))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, region.Len()))(t)
	buf := must.Get(a.rt.Alloc(region.Len()))(t)
	defer buf.Release()
	ms := sendAndTake(t, a, b, 4)
	link.SetAll(fabric.Link{Delay: 20 * time.Millisecond})
	defer link.SetAll(fabric.Link{})
	var fs []Future
	for range 3 {
		f := must.Get(a.Write(ctx, buf.Slice(), remote))(t)
		fs = append(fs, f)
	}
	release(t, ms...) // b's credit update arrives while a.Close waits for the WRITEs
	if err := a.Close(ctx); err != nil {
		t.Errorf("Close: %v, want no error", err)
	}
	for i, f := range fs {
		if _, err := f.Await(ctx); err != nil {
			t.Errorf("WRITE %d, which was outstanding when Close was called: %v, want no error", i, err)
		}
	}
}

// Rule: when a frame (a message or a credit update) returns credits, the same pass posts the receives
// of these credits again. So if an end sends only credit updates, one doorbell
// posts half of its receives.
func TestReleasedReceivesArePostedInBatches(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		const credits, rounds = 16, 40
		a, b := d.connected(t, Config{Conn: Options{RecvCredits: credits}})
		before := b.rt.Stats()
		for range rounds {
			for range credits {
				release(t, sendAndTake(t, a, b, 1)...)
			}
		}
		after := b.rt.Stats()
		posted, bells := after.RecvRequests-before.RecvRequests, after.RecvDoorbells-before.RecvDoorbells
		t.Logf("%d receives were posted with %d doorbells, %.1f receives for each doorbell", posted, bells, float64(posted)/float64(bells))
		if want := uint64((rounds - 1) * credits); posted < want {
			t.Errorf("%d receives were posted again, want at least %d", posted, want)
		}
		if most := uint64(rounds*credits/b.updateAt() + 1); bells > most {
			t.Errorf("%d doorbells posted the receives of %d messages, want at most %d: one for each half of the credits", bells, rounds*credits, most)
		}
	})
}

// Rule: a second credit update waits until a message has come that used a credit of the first. So one
// receive is enough for updates.
func TestOneUpdateIsInFlight(t *testing.T) {
	const credits = 8
	a, b := connected(t, Config{Conn: Options{RecvCredits: credits}})
	ms := sendAndTake(t, a, b, credits)
	updates := func() uint64 { return b.rt.Stats().WorkRequests - b.rt.Stats().KeepAlives }
	before := updates()
	for _, half := range [][]Message{ms[:credits/2], ms[credits/2:]} {
		release(t, half...)
		held(t, b, b.sendCreditUpdate)
		held(t, b, func() {}) // a pass posts the update
	}
	if n := updates() - before; n != 1 {
		t.Errorf("%d updates were sent before the peer has used a credit of the first, want 1", n)
	}
	release(t, sendAndTake(t, a, b, 1)...)
	eventually(t, "the second update", func() bool { return updates()-before == 2 })
}

// Rule: if a message that carries credits to the peer waits for a slot, and gives the credits back because
// its context has ended, the updates that were sent meanwhile hold back no later update.
func TestGivenUpCreditsHoldNoUpdateBack(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 4}})
	ms := sendAndTake(t, a, b, 4)
	held(t, b, func() { // no update is sent while this function holds the turn
		release(t, ms[:2]...)
		f := b.frame(proto.Data, 0) // of a message that waits for a slot
		if f.Credits != 2 {
			t.Errorf("the message carries %d credits, want 2", f.Credits)
		}
		release(t, ms[2])
		b.update(true)
		b.unframe(f)
	})
	release(t, ms[3])
	// The peer uses the credit of the update. Then it needs the two that were given back.
	for range 2 {
		release(t, sendAndTake(t, a, b, 1)...)
	}
	release(t, sendAndTake(t, a, b, 3)...)
}
