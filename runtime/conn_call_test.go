package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// answering answers the messages of c with the same text, until c ends.
func answering(ctx context.Context, c *Conn) error {
	for {
		m, err := c.RecvWait(ctx)
		if err != nil {
			return err
		}
		op := SendBytesOp(m.Data)
		if err := m.Reply(ctx, &op); err != nil {
			return err
		}
	}
}

// Rule: each Call gets the answer to its own message, with several goroutines calling on one connection, and
// with more calls than credits.
func TestEachCallGetsItsAnswer(t *testing.T) { onBeds(t, eachCallGetsItsAnswer) }

func eachCallGetsItsAnswer(t *testing.T, b bed) {
	a, s := b.connected(t, Config{Conn: Options{RecvCredits: 3}})
	ctx := testContext(t)
	ended := make(chan error, 1)
	go func() { ended <- answering(ctx, s) }()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				text := fmt.Sprintf("call %d of %d", i, g)
				op := SendBytesOp([]byte(text))
				m, err := a.Call(ctx, &op)
				if err != nil || string(m.Data) != text {
					t.Errorf("the answer to %q was %q, %v", text, m.Data, err)
					return
				}
				if err := m.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must.Do(t, a.Close(ctx))
	if err := <-ended; !errors.Is(err, ErrPeerClosed) {
		t.Errorf("the answering end stopped with %v, want %v", err, ErrPeerClosed)
	}
}

// Rule: if a Call gives up, no later Call gets its answer, and the answer's receive returns to the peer.
func TestAGivenUpCallTakesItsAnswer(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 2}})
	ctx := testContext(t)
	for i := range 20 { // more than credits
		op := SendBytesOp([]byte{byte(i)})
		if i%2 == 0 {
			if m, err := a.Call(givenUp, &op); !errors.Is(err, errGivenUp) {
				t.Fatalf("Call with a context that ends: %v, %v; want %v", m.Data, err, errGivenUp)
			}
			continue
		}
		ask := make(chan error, 1)
		go func() {
			m, err := a.Call(ctx, &op)
			if err == nil && !slices.Equal(m.Data, []byte{byte(i)}) {
				err = fmt.Errorf("Call %d got the answer %v", i, m.Data)
			}
			ask <- errors.Join(err, m.Release())
		}()
		for range 2 {
			m := must.Get(b.RecvWait(ctx))(t)
			answer := SendBytesOp(m.Data)
			must.Do(t, m.Reply(ctx, &answer))
		}
		must.Do(t, <-ask)
	}
}

// Rule: Call and Reply refuse an operation that is not a message, a missing context, and a connection that is closed.
// Reply also refuses the zero Message and a released one. A refused call sends nothing.
func TestCallMistakes(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	local := must.Get(a.rt.Alloc(8))(t)
	defer local.Release()
	write, message := WriteOp(local.Slice(), Remote{}), SendBytesOp([]byte("x"))
	if _, err := a.Call(ctx, &write); !errors.Is(err, ErrInvalid) {
		t.Errorf("Call of a WRITE: %v, want %v", err, ErrInvalid)
	}
	if _, err := a.Call(ctx, new(Op)); !errors.Is(err, ErrInvalid) {
		t.Errorf("Call of the zero Op: %v, want %v", err, ErrInvalid)
	}
	if _, err := a.Call(nil, &message); !errors.Is(err, ErrNilContext) { //nolint:staticcheck // the mistake
		t.Errorf("Call without a context: %v, want %v", err, ErrNilContext)
	}
	if err := (Message{}).Reply(ctx, &message); !errors.Is(err, ErrMessage) {
		t.Errorf("Reply to the zero Message: %v, want %v", err, ErrMessage)
	}
	must.Get(a.SendBytes(ctx, []byte("only")))(t)
	m := must.Get(b.RecvWait(ctx))(t)
	if err := m.Reply(ctx, &write); !errors.Is(err, ErrInvalid) {
		t.Errorf("Reply with a WRITE: %v, want %v", err, ErrInvalid)
	}
	must.Do(t, m.Release())
	if err := m.Reply(ctx, &message); !errors.Is(err, ErrMessage) {
		t.Errorf("Reply to a released message: %v, want %v", err, ErrMessage)
	}
	must.Do(t, a.Close(ctx))
	if _, err := a.Call(ctx, &message); !errors.Is(err, ErrConnClosed) {
		t.Errorf("Call on a closed connection: %v, want %v", err, ErrConnClosed)
	}
}

// Rule: RecvMany takes the messages that have arrived, oldest first and at most as many as there is room, and
// ReleaseMany gives back all of them and reports which were given back before.
func TestRecvManyTakesWhatHasArrived(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 50}})
	ctx := testContext(t)
	if n, err := b.RecvMany(ctx, nil); n != 0 || !errors.Is(err, ErrInvalid) {
		t.Errorf("RecvMany without room: %d, %v; want 0, %v", n, err, ErrInvalid)
	}
	const each = 24 // up to half of the credits may be unreturned while no goroutine waits
	ms, next := make([]Message, 20), 0
	for round := range 10 {
		for i := range each {
			f, err := a.SendBytes(ctx, []byte{byte(round), byte(i)})
			done(t, f, err)
		}
		for got := 0; got < each; {
			n := must.Get(b.RecvMany(ctx, ms))(t)
			for _, m := range ms[:n] {
				if want := []byte{byte(next / each), byte(next % each)}; !slices.Equal(m.Data, want) {
					t.Fatalf("message %d is %v, want %v", next, m.Data, want)
				}
				next++
			}
			got += n
			must.Do(t, ReleaseMany(ms[:n]))
			if err := ReleaseMany(ms[:n]); !errors.Is(err, ErrMessage) {
				t.Fatalf("the second ReleaseMany: %v, want %v", err, ErrMessage)
			}
		}
	}
}

// Rule: the message of a discarded future comes before a later message that has arrived, also to RecvWait, which
// otherwise takes arrived messages without the reactor.
func TestRecvWaitTakesAReturnedMessageFirst(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	for range 50 {
		first := b.Recv()
		for _, text := range []byte{1, 2} {
			f, err := a.SendBytes(ctx, []byte{text})
			done(t, f, err)
		}
		eventually(t, "both messages to arrive", func() bool { return first.Settled() && arrivedAt(t, b) })
		first.Discard()
		for _, want := range []byte{1, 2} {
			m := must.Get(b.RecvWait(ctx))(t)
			if m.Data[0] != want {
				t.Fatalf("RecvWait returned message %d, want %d", m.Data[0], want)
			}
			must.Do(t, m.Release())
		}
	}
}

// Rule: if the device refuses to post the message of a Call, the connection fails and the Call ends: it must not take
// the answer of a later one. The same holds for a credit update.
func TestARefusedMessageEndsTheConnection(t *testing.T) {
	refused := errors.New("refused by the device")
	for name, sink := range map[string]func(*Conn) Sink{
		"a call":          func(c *Conn) Sink { return (*unheard)(c) },
		"a credit update": func(c *Conn) Sink { return (*connSink)(c) },
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := connected(t, Config{})
			ended := make(chan error, 1)
			go func() {
				op := SendBytesOp([]byte("x"))
				_, err := a.Call(testContext(t), &op)
				ended <- err
			}()
			must.Do(t, a.sh.r.Do(testContext(t), func() { sink(a).Complete(SinkContext{}, Result{}, refused) }))
			<-a.Done()
			if err := a.Err(); !errors.Is(err, refused) {
				t.Errorf("the connection ended with %v, want %v", err, refused)
			}
			if err := <-ended; !errors.Is(err, refused) {
				t.Errorf("the Call ended with %v, want %v", err, refused)
			}
		})
	}
}

// Rule: if waits for a credit give up, the connection soon drops their entries in the line, even behind a wait that goes
// on. (The bug: they stayed until that wait had its credit.)
func TestGivenUpCreditWaitsAreNotKept(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 1}})
	ctx := testContext(t)
	f, err := a.SendBytes(ctx, []byte("takes the credit"))
	done(t, f, err)
	first := make(chan error, 1)
	go func() {
		_, err := a.SendBytes(ctx, []byte("waits"))
		first <- err
	}()
	eventually(t, "the first wait for a credit", func() bool { return a.creditLine.Load() == 1 })
	for range 5 * pruneFrom {
		if _, err := a.SendBytes(givenUp, []byte("x")); !errors.Is(err, errGivenUp) {
			t.Fatalf("SendBytes with a context that ends returned %v, want %v", err, errGivenUp)
		}
	}
	kept := 0
	must.Do(t, a.sh.r.Do(ctx, func() { a.serveCredits(); kept = len(a.creditWaits) }))
	if line := int(a.creditLine.Load()); kept > 2*pruneFrom || line != kept {
		t.Errorf("the line has %d entries and counts %d, want the same, at most %d; one of them has not given up", kept, line, 2*pruneFrom)
	}
	m := must.Get(b.RecvWait(ctx))(t)
	must.Do(t, m.Release())
	m = must.Get(b.RecvWait(ctx))(t) // starving: the credit is returned
	must.Do(t, <-first)
	must.Do(t, m.Release())
}
