package runtime

import (
	"context"
	"errors"
	stdruntime "runtime"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: two ends that close while each waits for the other to read do not wait for each other.
func TestBothEndsMayCloseWithUnreadLargeMessages(t *testing.T) {
	const size = 50_000 // the budget permits one
	largeOn(t, onPlainBeds, Config{Conn: Options{MaxMessage: 1 << 16}}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		var unread []Future
		ended := make(chan error, 2)
		for _, c := range []*Conn{a, b} {
			must.Get(c.SendBytes(ctx, randomBytes(size)))(t).Discard()
			unread = append(unread, must.Get(c.SendBytes(ctx, randomBytes(size)))(t))
			small := must.Get(c.SendBytes(ctx, []byte("small")))(t)
			must.Get(small.Await(ctx))(t) // the peer has them all
		}
		for _, c := range []*Conn{a, b} {
			go func() { ended <- c.Close(ctx) }()
		}
		must.Do(t, <-ended)
		must.Do(t, <-ended)
		for _, f := range unread {
			if _, err := f.Await(ctx); err == nil {
				t.Error("a message that the peer cannot have read ended without an error")
			}
		}
	})
}

// Rule: a peer that invalidates the key of a message without reading the message ends its connection, and the program
// gets no window that it has not made.
func TestInvalidatingAMessageWithoutReadingItEndsTheConnection(t *testing.T) {
	a, b := connected(t, Config{})
	needsLarge(t, a)
	ctx := testContext(t)
	f := must.Get(a.SendBytes(ctx, randomBytes(20_000)))(t)
	small := must.Get(a.SendBytes(ctx, []byte("small")))(t)
	must.Get(small.Await(ctx))(t)
	var key uint32
	held(t, a, func() { key = a.large.Load().out[0].key })
	held(t, b, func() {
		var head [frameSize]byte
		b.credits.take(1)
		b.frame(proto.Data, 0).Encode(&head)
		s := reactor.Send{Opcode: verbs.WRSendWithInv, Invalidate: key, Sink: nothing{}}
		if _, err := b.q.Submit(ctx, &s, &reactor.Payload{Inline: head[:]}, reactor.NonBlock); err != nil {
			t.Errorf("submitting the SEND: %v", err)
		}
	})
	_, err := a.RecvWait(ctx)
	mistake(t, "RecvWait after the window of a message was invalidated", err, ErrPeerProtocol, "without reading")
	if _, err := f.Await(ctx); err == nil {
		t.Error("the message ended without an error")
	}
}

// Rule: Close waits until the peer has read all messages, and Cancel does not: it ends them with its cause, and
// the caller owns the memory again.
func TestEndsOfConnectionsWithLargeMessages(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		data := randomBytes(64 << 10)
		first := must.Get(a.SendBytes(ctx, data))(t)
		closed := make(chan error, 1)
		go func() { closed <- a.Close(ctx) }()
		release(t, wantMessage(t, b, data))
		must.Do(t, <-closed)
		must.Get(first.Await(ctx))(t)
	})
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		region := must.Get(a.rt.NewRegion(64<<10, verbs.AccessLocalWrite))(t)
		f := must.Get(a.Send(ctx, must.Get(region.Slice(0, 64<<10))(t)))(t)
		small := must.Get(a.SendBytes(ctx, []byte("behind")))(t)
		must.Get(small.Await(ctx))(t)
		must.Do(t, a.Cancel(ctx))
		if _, err := f.Await(ctx); !errors.Is(err, ErrCancelled) {
			t.Errorf("a large message that was cancelled ended with %v, want %v", err, ErrCancelled)
		}
		must.Do(t, region.Close())
		if m, err := b.RecvWait(ctx); err == nil {
			t.Errorf("the peer got the message %q, which came behind one that was cancelled", m.Data)
		}
	})
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) { // the peer leaves without receiving
		ctx := testContext(t)
		f := must.Get(a.SendBytes(ctx, randomBytes(64<<10)))(t)
		b.Abort()
		if _, err := f.Await(ctx); err == nil {
			t.Error("a large message to a peer that has not received it ended without an error")
		}
	})
}

// Rule: the receives for answers return to the pool with the connection.
func TestReceivesForAnswersReturnToThePool(t *testing.T) {
	a, b := connected(t, Config{})
	needsLarge(t, a)
	needsPools(t, a)
	ctx := testContext(t)
	must.Get(a.SendBytes(ctx, randomBytes(20_000)))(t).Discard()
	release(t, wantMessage(t, b, randomBytes(20_000)))
	must.Do(t, a.Close(ctx))
	must.Do(t, b.Close(ctx))
	checkPool(t, a.pool)
	checkPool(t, b.pool)
}

// Rule: a reader that finds the key revoked, or a descriptor outside the window, ends the connection; nothing
// that came behind is delivered.
func TestAForgedSourceEndsTheConnection(t *testing.T) {
	a, b := connected(t, Config{})
	needsLarge(t, a)
	ctx := testContext(t)
	held(t, a, func() {
		if _, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: nothing{}}, &reactor.Payload{Inline: sourceFrame(1<<20, 12345)}, reactor.NonBlock); err != nil {
			t.Errorf("submitting the SEND: %v", err)
		}
	})
	if m, err := b.RecvWait(ctx); err == nil {
		t.Errorf("a message of %d bytes came from memory that the peer has not opened", len(m.Data))
	}
	must.Do(t, b.Close(ctx))
	if s := b.rt.MemoryStats(); s.InUse >= 1<<20 {
		t.Errorf("%d bytes are in use after the connection was closed", s.InUse)
	}
}

// Rule: a large message that is submitted after the connection has ended its messages ends, too. (A goroutine may
// be preempted between its look at the queue and the submission.)
func TestALateLargeMessageEnds(t *testing.T) {
	a, _ := connected(t, Config{})
	needsLarge(t, a)
	ctx := testContext(t)
	held(t, a, func() { // as after a failure, but the queue and the cause do not say so yet
		a.q.Seal()
		a.state, a.drained = connFailed, true
	})
	f := must.Get(a.SendBytes(ctx, randomBytes(20_000)))(t)
	if _, err := f.Await(ctx); err == nil {
		t.Error("a message that was not posted ended without an error")
	}
}

// Rule: a start of a large message that waits for the peer ends with its context, and gives back what it has
// acquired.
func TestWaitingToSendLargeMessagesEnds(t *testing.T) {
	onLargeBeds(t, Config{}, func(t *testing.T, a, b *Conn) {
		ctx := testContext(t)
		data := randomBytes(20_000)
		for range maxLarge {
			must.Get(a.SendBytes(ctx, data))(t).Discard()
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := a.SendBytes(ended, data); !errors.Is(err, context.Canceled) {
			t.Errorf("a start that waits for the peer: %v, want %v", err, context.Canceled)
		}
		for range maxLarge {
			release(t, wantMessage(t, b, data))
		}
		must.Get(a.SendBytes(ctx, data))(t).Discard()
		release(t, wantMessage(t, b, data))
	})
}

// Rule: a start of a large message whose binding was submitted ends with its context, too, if the send queue has no
// room for the frame. Nothing was sent, and the window, the place and the credit come back.
func TestALargeMessageWithoutRoomForItsFrameEndsWithItsContext(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p, Conn: Options{SendDepth: 2, RecvCredits: 4}})
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(64, allAccess))(t)
	remote := must.Get(far.Remote(0, 64))(t)
	buf := bufferOf(t, a.rt, make([]byte, 64))
	data := randomBytes(20_000)
	must.Get(a.SendBytes(ctx, data))(t).Discard() // makes the window
	release(t, wantMessage(t, b, data))

	link.SetAll(fabric.Link{Down: true})
	write := must.Get(a.Write(ctx, buf.Slice(), remote))(t) // the first slot; the binding behind it takes the second
	short, cancel := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() {
		_, err := a.SendBytes(short, data)
		sent <- err
	}()
	for l, bound := a.large.Load(), false; !bound; { // a busy wait: there is no signal when the binding was submitted
		stdruntime.Gosched()
		l.mu.Lock()
		bound = len(l.out) > 0
		l.mu.Unlock()
	}
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Fatalf("SendBytes without room for its second request: %v, want %v", err, context.Canceled)
	}
	link.SetAll(fabric.Link{})
	must.Get(write.Await(ctx))(t)
	small := []byte("behind")
	must.Get(a.SendBytes(ctx, small))(t).Discard()
	release(t, wantMessage(t, b, small)) // the dropped message did not arrive
	for range 2 * maxLarge {
		large := must.Get(a.SendBytes(ctx, data))(t)
		release(t, wantMessage(t, b, data))
		must.Get(large.Await(ctx))(t)
	}
	held(t, a, func() {
		if n := len(a.windows); n > 1 {
			t.Errorf("the connection has %d windows, want 1: that of the message that was not sent is closed", n)
		}
	})
	must.Do(t, a.Close(ctx))
}

// Rule: a message that is not sent gives one place back, also if the peer has answered it before it was to be sent, or
// answers it afterwards. (The bug: it gave back two, and the peer had more messages sent at once than the sender keeps
// receives for answers.)
func TestAMessageThatIsNotSentGivesOnePlaceBack(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after bool // the peer answers before the start ends, after it
	}{
		{name: "no answer"},
		{name: "an answer before the start ends", before: true},
		{name: "an answer after it", after: true},
		{name: "two answers", before: true, after: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, link := smallPorts(t, 1<<20)
			a, b := connected(t, Config{Provider: p, Conn: Options{SendDepth: 2, RecvCredits: 4}})
			ctx := testContext(t)
			remote := must.Get(must.Get(b.rt.NewRegion(64, allAccess))(t).Remote(0, 64))(t)
			buf := bufferOf(t, a.rt, make([]byte, 64))
			data := randomBytes(20_000)
			must.Get(a.SendBytes(ctx, data))(t).Discard() // makes the window
			release(t, wantMessage(t, b, data))
			l := a.large.Load()
			eventually(t, "the answer to the first message", func() bool { return len(l.places) == maxLarge })
			for range maxLarge - 1 { // as other messages do that wait for their answers
				<-l.places
			}
			const left = 1

			link.SetAll(fabric.Link{Down: true})
			must.Get(a.Write(ctx, buf.Slice(), remote))(t).Discard() // the binding behind it takes the second slot, the frame finds none
			short, cancel := context.WithCancel(ctx)
			sent := make(chan error, 1)
			go func() {
				_, err := a.SendBytes(short, data)
				sent <- err
			}()
			var key uint32
			eventually(t, "the binding to be submitted", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.out) == 0 {
					return false
				}
				key = l.out[0].key
				return true
			})
			answer := func() (err error) {
				held(t, a, func() { err = a.answered(&Result{Flags: verbs.WCWithInv, Imm: key}) })
				return err
			}
			if c.before {
				must.Do(t, answer())
			}
			cancel()
			if err := <-sent; !errors.Is(err, context.Canceled) {
				t.Fatalf("SendBytes without room for its second request: %v, want %v", err, context.Canceled)
			}
			if c.after {
				if err := answer(); !errors.Is(err, ErrPeerProtocol) {
					t.Errorf("an answer to a message that was not sent: %v, want %v", err, ErrPeerProtocol)
				}
			}
			if n := len(l.places); n != left {
				t.Errorf("%d places are free, want %d: the others are those of messages without answers", n, left)
			}
			link.SetAll(fabric.Link{})
		})
	}
}
