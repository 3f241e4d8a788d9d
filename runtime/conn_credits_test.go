package runtime

import (
	"context"
	stdruntime "runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
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
			t.Error(err)
		}
	}
}

// Rule: if at least one receive is free, a waiting receiver gets the next message. The user may
// hold the messages of all other receives.
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
				if err := b.sh.r.Do(ctx, b.match); err != nil { // so that the receiver waits before the release
					t.Fatal(err)
				}
				release(t, ms[3])
			}
			if _, err := a.SendBytes(ctx, []byte{byte(i)}); err != nil {
				t.Fatalf("3 of 4 held, one receive free, message %d: %v", i, err)
			}
			m, err := f.Await(ctx)
			if err != nil || m.Data[0] != byte(i) {
				t.Fatalf("message %d: %v, %v", i, m.Data, err)
			}
			ms[3] = m
		}
		release(t, ms...)
	}
}

// Rule: while no receiver waits, a credit update is sent only if half of all credits are
// unreturned.
func TestUpdatesAreFewWhileNobodyWaits(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 8}})
	before := b.rt.Stats().WorkRequests
	ms := sendAndTake(t, a, b, 8)
	release(t, ms[:3]...)
	if err := b.sh.r.Do(testContext(t), b.sendCreditUpdate); err != nil {
		t.Fatal(err)
	}
	if n := b.unreturned.Load(); n != 3 {
		t.Errorf("%d of 3 receives are still to be told, want all", n)
	}
	release(t, ms[3:]...)
	if err := b.sh.r.Do(testContext(t), func() {}); err != nil {
		t.Fatal(err)
	}
	if n := b.rt.Stats().WorkRequests - before; n > 2 {
		t.Errorf("%d updates for 8 receives, want at most 2", n)
	}
}

// Rule: if a message with credits is not posted, a later credit update returns these credits.
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
	if err := b.sh.r.Do(ctx, func() { // no credit update runs while this function holds the turn: the message takes the credits
		release(t, ms...)
		go func() {
			_, err := b.SendBytes(short, []byte("x"))
			sent <- err
		}()
		for b.unreturned.Load() != 0 {
			stdruntime.Gosched() // a busy wait: there is no signal when the message has taken the credits
		}
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-sent; err == nil {
		t.Fatal("a message went through a full queue")
	}
	link.SetAll(fabric.Link{})
	done(t, w, nil)
	if _, err := a.SendBytes(ctx, []byte("y")); err != nil {
		t.Errorf("all receives of the peer are free, and: %v", err)
	}
}

// Rule: if the queue has no room for a credit update, a later update returns the credits.
func TestCreditsOfAnUpdateWithoutRoomAreTold(t *testing.T) {
	const credits = 4
	a, b := connected(t, Config{Conn: Options{RecvCredits: credits}})
	ms := sendAndTake(t, a, b, credits)
	var kept uint32
	if err := b.sh.r.Do(testContext(t), func() {
		for b.q.PostControl(&reactor.Send{Opcode: verbs.WRRDMAWrite, Sink: (*connSink)(b)}, reactor.Payload{}) == nil {
		}
		release(t, ms...)
		b.sendCreditUpdate()
		kept = b.unreturned.Load()
	}); err != nil {
		t.Fatal(err)
	}
	if kept != credits {
		t.Fatalf("%d of %d receives are still to be told, want all", kept, credits)
	}
	release(t, sendAndTake(t, a, b, credits)...)
}

// Rule: Close waits for outstanding operations. A credit update that arrives meanwhile does not end
// this wait early.
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
	release(t, ms...) // the link delays the update as long as the writes
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	for i, f := range fs {
		if _, err := f.Await(ctx); err != nil {
			t.Errorf("write %d under way at Close: %v", i, err)
		}
	}
}

// Rule: a released receive is posted again in the same pass as the frame that returns its credit.
// So one doorbell posts up to half of all receives.
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
		t.Logf("%d receives with %d doorbells, %.1f each", posted, bells, float64(posted)/float64(bells))
		if want := uint64((rounds - 1) * credits); posted < want {
			t.Errorf("%d receives were posted again, want %d at least", posted, want)
		}
		if most := uint64(rounds*credits/b.updateAt() + 1); bells > most {
			t.Errorf("%d doorbells for the receives of %d messages, want at most %d: one for half of the credits", bells, rounds*credits, most)
		}
	})
}
