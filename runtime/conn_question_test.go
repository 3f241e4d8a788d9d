package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// calling calls n times on a, each from its own goroutine, with the payloads that text returns. It returns the
// errors of the Calls that got a wrong answer: the right answer is the question.
func calling(ctx context.Context, a *Conn, n int, text func(i int) []byte) <-chan error {
	ended := make(chan error, n)
	for i := range n {
		go func() {
			q := text(i)
			op := SendBytesOp(q)
			m, err := a.Call(ctx, &op)
			if err == nil && string(m.Data) != string(q) {
				err = fmt.Errorf("the answer to question %d has %d bytes, and is that to another", i, len(m.Data))
			}
			if err == nil {
				err = m.Release()
			}
			ended <- err
		}()
	}
	return ended
}

// Rule: questions are answered in any order and beside other messages, by goroutines of the peer, after their messages
// were released; each Call gets the answer to its own question, and Recv gets what is no answer. Large messages ask
// and answer as small ones do.
func TestAnswersInAnyOrderReachTheirCalls(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{})
		ctx := testContext(t)
		const n = 40
		large := a.MaxMessage() > 20_000
		text := func(i int) []byte {
			if large && i%5 == 0 {
				return []byte(strings.Repeat(fmt.Sprintf("%09d.", i), 2000))
			}
			return fmt.Appendf(nil, "question %d", i)
		}
		ended := calling(ctx, a, n, text)
		var open []*Question
		var texts [][]byte
		for range n { // more than any window of a new connection: the questions hold no receives
			m := must.Get(b.RecvWait(ctx))(t)
			if !m.IsQuestion() {
				t.Fatal("a question is not marked as one")
			}
			open, texts = append(open, must.Get(m.Question())(t)), append(texts, append([]byte(nil), m.Data...))
			if err := m.Reply(ctx, new(SendBytesOp(nil))); !errors.Is(err, ErrAnswered) {
				t.Fatalf("Reply after Question: %v, want %v", err, ErrAnswered)
			}
			must.Do(t, m.Release())
		}
		must.Get(b.SendBytes(ctx, []byte("a notification")))(t).Discard()
		var all sync.WaitGroup
		for _, i := range rand.Perm(n) {
			all.Go(func() {
				op := SendBytesOp(texts[i])
				if err := open[i].Reply(ctx, &op); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for range n {
			must.Do(t, <-ended)
		}
		m := must.Get(a.RecvWait(ctx))(t)
		if string(m.Data) != "a notification" || m.IsQuestion() {
			t.Errorf("Recv got %q, a question: %t; want the notification", m.Data, m.IsQuestion())
		}
		if _, err := m.Question(); !errors.Is(err, ErrInvalid) {
			t.Errorf("Question of a notification: %v, want %v", err, ErrInvalid)
		}
		must.Do(t, m.Release())
		if n := a.rt.CallStats().StaleAnswers; n != 0 {
			t.Errorf("%d answers were dropped, want none", n)
		}
	})
}

// Rule: of several Replies to one question, exactly one is sent, and the others return ErrAnswered (or ErrMessage, if
// the message was released meanwhile). A Reply that fails gives the right to answer back.
func TestAQuestionIsAnsweredOnce(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	for i := range fewer(400) {
		ended := calling(ctx, a, 1, func(int) []byte { return []byte("q") })
		m := must.Get(b.RecvWait(ctx))(t)
		reply := m.Reply
		if i%2 == 1 {
			q := must.Get(m.Question())(t)
			must.Do(t, m.Release())
			reply = q.Reply
		}
		if err := reply(endedContext(), new(SendBytesOp(make([]byte, a.MaxMessage()+1)))); err == nil {
			t.Fatal("an answer that is too large was sent")
		}
		var errs [3]error
		var all sync.WaitGroup
		for k := range errs {
			all.Go(func() { errs[k] = reply(ctx, new(SendBytesOp([]byte("q")))) })
		}
		all.Wait()
		sent := 0
		for _, err := range errs {
			if err == nil {
				sent++
			} else if !errors.Is(err, ErrAnswered) && !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
		}
		must.Do(t, <-ended)
		if sent != 1 {
			t.Fatalf("%d of %d Replies to question %d were sent, want 1", sent, len(errs), i)
		}
	}
	// Whatever was sent in addition has arrived before this message.
	done(t, must.Get(b.SendBytes(ctx, []byte("last")))(t), nil)
	release(t, wantMessage(t, a, []byte("last")))
	if n := a.rt.CallStats().StaleAnswers; n != 0 {
		t.Errorf("%d answers arrived that no Call waited for, want none", n)
	}
}

// Rule: a Reply beside the end of an earlier message's claim of the same receive has the right to answer. (The bug: it
// returned ErrAnswered, although the message was not answered.)
func TestAClaimBesideTheEndOfAnEarlierOne(t *testing.T) {
	s := &recvSlot{}
	s.released.Store(5)
	earlier, m := Message{slot: s, number: 4}, Message{slot: s, number: 5}
	stop, stopped, runs := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		close(runs)
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				s.claimed.CompareAndSwap(earlier.number, earlier.number+1)
				earlier.unclaim()
			}
		}
	}()
	<-runs
	for range fewer(3_000_000) { // long enough for both to run at the same time
		if _, err := m.claim(); err != nil {
			t.Errorf("the claim returned %v", err)
			break
		}
		s.claimed.Store(earlier.number)
	}
	close(stop)
	<-stopped
}

// answerTo sends an answer to the question with the number, as a hostile peer does. It takes a credit.
func answerTo(t *testing.T, c *Conn, number uint32, text string) {
	t.Helper()
	op := SendBytesOp([]byte(text))
	if _, err := c.start(testContext(t), &op, submitOpts{sink: nothing{}, number: number, answers: true}); err != nil {
		t.Fatal(err)
	}
}

// Rule: an answer to a question that was never asked, that was answered before, or whose Call has ended is dropped and
// counted, small or large; its receive returns to the peer, and no other Call gets it. (The bug: answers were matched by
// their order alone, so one too many shifted all later ones.)
func TestAnswersThatNoCallWaitsForAreDropped(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	long := ""
	if a.MaxMessage() > 20_000 {
		long = strings.Repeat("x", 20_000)
	}
	dropped := uint64(0)
	for round := range uint32(100) { // more than a window
		short, cancel := context.WithCancel(ctx)
		ended := calling(short, a, 1, func(int) []byte { return []byte("given up") })
		m := must.Get(b.RecvWait(ctx))(t)
		late := must.Get(m.Question())(t)
		must.Do(t, m.Release())
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		must.Do(t, late.Reply(ctx, new(SendBytesOp([]byte("late"+long)))))
		answerTo(t, b, late.number, "twice")
		answerTo(t, b, late.number+1000, "never asked")
		answerTo(t, b, 1<<31+round, "never asked"+long)
		dropped += 4
		ended = calling(ctx, a, 1, func(int) []byte { return []byte("right") })
		m = must.Get(b.RecvWait(ctx))(t)
		must.Do(t, m.Reply(ctx, new(SendBytesOp([]byte("right")))))
		must.Do(t, <-ended)
	}
	if n := a.rt.CallStats().StaleAnswers; n != dropped {
		t.Errorf("%d answers were dropped, want %d", n, dropped)
	}
	if q := a.arrived.Load(); q != nil && !q.Empty() {
		t.Error("an answer was given to Recv")
	}
	checkWindow(t, b, a, 0)
}

// Rule: a peer that answers with Send in place of Reply is not taken for one that answers: Recv gets the message, and
// the Call ends with its context.
func TestASendIsNoAnswer(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	short, cancel := context.WithCancel(ctx)
	ended := calling(short, a, 1, func(int) []byte { return []byte("q") })
	release(t, must.Get(b.RecvWait(ctx))(t))
	must.Get(b.SendBytes(ctx, []byte("q")))(t).Discard()
	release(t, wantMessage(t, a, []byte("q")))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the Call ended with %v, want %v", err, context.Canceled)
	}
}

// Rule: Calls that were given up are not kept, whether the peer answers them or not; and when many have ended, the
// table of the Calls becomes small again.
func TestGivenUpCallsAreNotKept(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	for range 20 * minCalls {
		short, cancel := context.WithCancel(ctx)
		ended := calling(short, a, 1, func(int) []byte { return []byte("q") })
		release(t, must.Get(b.RecvWait(ctx))(t))
		cancel()
		<-ended
	}
	held(t, a, func() {
		if n := len(a.calls.heads); n > 2*minCalls || a.calls.open > n {
			t.Errorf("%d given-up Calls are kept in a table of %d, want at most %d", a.calls.open, n, 2*minCalls)
		}
	})
}

// Rule: the table of the Calls gives each number its Call, at any size, and shrinks when most Calls have ended. A number
// that waits is refused.
func TestTheTableOfCalls(t *testing.T) {
	var table calls
	waits := map[uint32]*recvWaiter{}
	for i := range uint32(5000) {
		w := &recvWaiter{number: i*i + 1, sink: sinkOfMessages{}} // wanted
		if _, twice := waits[w.number]; table.add(w) == twice {
			t.Fatalf("adding %d: twice %t", w.number, twice)
		}
		waits[w.number] = w
	}
	if table.add(&recvWaiter{number: 1}) {
		t.Error("a number that waits was taken")
	}
	for number, w := range waits {
		if !table.waits(number) || table.take(number) != w || table.waits(number) || table.take(number) != nil {
			t.Fatalf("the Call with number %d is not found once", number)
		}
	}
	if n := len(table.heads); table.open != 0 || n > 2*minCalls {
		t.Errorf("the empty table counts %d Calls and has %d places, want 0 and at most %d", table.open, n, 2*minCalls)
	}
}

type sinkOfMessages struct{}

func (sinkOfMessages) Received(Message, error) {}

// Rule: the number 0, which is no question, is not used, and the numbers after it go on.
func TestNumbersOfQuestionsWrap(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	a.asked.Store(1<<32 - 3)
	go func() { _ = answering(ctx, b) }()
	for range 6 {
		must.Do(t, <-calling(ctx, a, 1, func(int) []byte { return []byte("q") }))
	}
	if n := a.asked.Load(); n != 4 {
		t.Errorf("the last number is %d, want 4", n)
	}
}

// Rule: if messages that the program does not receive hold all receives that the peer may use, so that no answer can
// come, Runtime.Stuck names the connection and the reason. When the program receives them, the answer comes.
func TestUnreadMessagesThatStopAnAnswerAreReported(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 3}})
	ctx := testContext(t)
	ended := calling(ctx, a, 1, func(int) []byte { return []byte("q") })
	m := must.Get(b.RecvWait(ctx))(t)
	stuck := func() (all []Stuck) {
		for _, s := range a.rt.Stuck(0) {
			if s.Conn == a && s.Reason != "" {
				all = append(all, s)
			}
		}
		return all
	}
	if all := stuck(); len(all) > 0 {
		t.Errorf("a connection whose peer has credits: %v", all)
	}
	for range 3 {
		must.Get(b.SendBytes(ctx, []byte("unread")))(t).Discard()
	}
	eventually(t, "the messages to arrive", func() (ok bool) { held(t, a, func() { ok = a.uncovered() }); return ok })
	answered := make(chan error, 1)
	go func() { answered <- m.Reply(ctx, new(SendBytesOp([]byte("q")))) }()
	if all := stuck(); len(all) != 1 || !strings.Contains(all[0].String(), "1 Calls wait") || all[0].Since.IsZero() {
		t.Errorf("Stuck reports %v, want the connection with its reason", all)
	}
	if all := a.rt.Stuck(time.Hour); len(all) > 0 {
		t.Errorf("stuck for an hour: %v", all)
	}
	for range 3 {
		release(t, wantMessage(t, a, []byte("unread")))
	}
	must.Do(t, <-answered)
	must.Do(t, <-ended)
	if all := stuck(); len(all) > 0 {
		t.Errorf("after the answer: %v", all)
	}
}

// Rule: a Call whose peer has no credit for the answer gets one when a message is released, although the
// program does not wait for messages and less than half of the window is free.
func TestACallGivesThePeerItsCredit(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 10}})
	ctx := testContext(t)
	kept := sendAndTake(t, b, a, 10) // their credits are held
	ended := calling(ctx, a, 1, func(int) []byte { return []byte("q") })
	m := must.Get(b.RecvWait(ctx))(t)
	answered := make(chan error, 1)
	go func() { answered <- m.Reply(ctx, new(SendBytesOp([]byte("q")))) }()
	eventually(t, "the answer to wait for a credit", func() bool { return b.creditLine.Load() == 1 })
	must.Do(t, kept[0].Release())
	must.Do(t, <-answered)
	must.Do(t, <-ended)
	release(t, kept[1:]...)
}

// Rule: a large answer is read although large messages before it are not, and is delivered before them. A peer
// that has more large messages under way than it may ends the connection.
func TestLargeAnswersPassUnreadLargeMessages(t *testing.T) {
	a, b := connected(t, Config{})
	needsLarge(t, a)
	ctx := testContext(t)
	data := randomBytes(20_000)
	for range maxLarge - 1 {
		must.Get(b.SendBytes(ctx, data))(t).Discard()
	}
	ended := make(chan error, 1)
	go func() { // the question is small: an end that sends large messages reads all
		m, err := a.Call(ctx, new(SendBytesOp([]byte("q"))))
		if err == nil && !bytes.Equal(m.Data, data[:10_000]) {
			err = fmt.Errorf("the answer has %d bytes, and is another", len(m.Data))
		}
		ended <- errors.Join(err, m.Release())
	}()
	m := must.Get(b.RecvWait(ctx))(t)
	must.Do(t, m.Reply(ctx, new(SendBytesOp(data[:10_000]))))
	must.Do(t, <-ended)
	for range maxLarge - 1 {
		release(t, wantMessage(t, a, data))
	}
	a, b = connected(t, Config{Conn: Options{RecvCredits: 2 * maxLarge}}) // a reads nothing
	held(t, b, func() {
		for range maxLarge + 1 {
			b.credits.take(1)
			if _, err := b.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRSend, Sink: nothing{}}, &reactor.Payload{Inline: sourceFrame(20_000, 12345)}, reactor.NonBlock); err != nil {
				t.Errorf("submitting the SEND: %v", err)
			}
		}
	})
	select {
	case <-a.Done():
	case <-ctx.Done():
	}
	if err := a.Err(); !errors.Is(err, ErrPeerProtocol) || !strings.Contains(err.Error(), "large messages before an answer") {
		t.Errorf("the connection has the error %v, want %v and the reason", err, ErrPeerProtocol)
	}
}
