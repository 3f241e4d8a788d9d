package actor

import (
	"context"
	"errors"
	"testing"
)

type question struct {
	n     int
	reply Reply[int]
}

// oracle answers with the double; it does not answer 0, keeps the reply of 1, and panics at 2.
type oracle struct{ kept chan Reply[int] }

func (o *oracle) Receive(_ *Context[question], q question) {
	switch q.n {
	case 0:
	case 1:
		o.kept <- q.reply
	case 2:
		panic(errBoom)
	default:
		q.reply.Send(2 * q.n)
	}
}

func about(n int) func(Reply[int]) question {
	return func(r Reply[int]) question { return question{n, r} }
}

// Rule: an answer reaches the asker, even if another goroutine gives it later.
func TestAsk(t *testing.T) {
	w := newWorld(t, Config{})
	o := &oracle{make(chan Reply[int], 1)}
	r := spawn[question](w, Options{}, o)
	for n := 3; n < 300; n++ {
		if v, err := AskWait(w.ctx, r, about(n)); v != 2*n || err != nil {
			t.Fatalf("asked %d: %d, %v", n, v, err)
		}
	}
	f := Ask(w.ctx, r, about(1))
	reply := wait(w, "the reply", o.kept)
	if !reply.Wanted() || !reply.Send(5) || reply.Send(6) {
		t.Error("a reply is given once")
	}
	if v, err := f.Await(w.ctx); v != 5 || err != nil {
		t.Errorf("answered later: %d, %v", v, err)
	}
	called := make(chan int, 1)
	Ask(w.ctx, r, about(4)).Then(func(v int, err error) { called <- v })
	if v := wait(w, "the callback", called); v != 8 {
		t.Errorf("the callback has %d", v)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := AskWait(ctx, r, about(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("asked with a context that has ended, and no answer: %v", err)
	}
}

// Rule: without an answer the asker gets an error with the cause: the handler panicked, the
// instance ended, the message was not handled or not accepted.
func TestAskWithoutReply(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	o := &oracle{make(chan Reply[int], 1)}
	r := spawn[question](w, Options{}, o)
	silent := Ask(w.ctx, r, about(0))
	kept := Ask(w.ctx, r, about(1))
	panics := Ask(w.ctx, r, about(2))
	waits := Ask(w.ctx, r, about(3)) // survives the restart
	_, err := panics.Await(w.ctx)
	if !errors.Is(err, ErrNoReply) || !errors.Is(err, errBoom) {
		t.Errorf("a panic answers %v, want ErrNoReply with it", err)
	}
	if _, err := silent.Await(w.ctx); !errors.Is(err, ErrNoReply) || !errors.Is(err, errBoom) {
		t.Errorf("of a handler that failed later: %v", err)
	}
	if _, err := kept.Await(w.ctx); !errors.Is(err, ErrNoReply) {
		t.Errorf("of one whose reply was kept: %v", err)
	}
	reply := wait(w, "the reply", o.kept)
	if reply.Wanted() || reply.Send(1) {
		t.Error("too late an answer was taken")
	}
	clock.move(wait(w, "the backoff", clock.made))
	if v, err := waits.Await(w.ctx); v != 6 || err != nil {
		t.Errorf("after the restart: %d, %v", v, err)
	}
	silent = Ask(w.ctx, r, about(0))
	r.Stop()
	if _, err := silent.Await(w.ctx); !errors.Is(err, ErrNoReply) || !errors.Is(err, ErrStopped) {
		t.Errorf("of one that stopped: %v", err)
	}
	wait(w, "the end", r.Done())
	if _, err := AskWait(w.ctx, r, about(3)); !errors.Is(err, ErrStopped) {
		t.Errorf("asking one that has ended: %v", err)
	}
	if _, err := AskWait(w.ctx, Ref[question]{}, about(3)); !errors.Is(err, ErrNoActor) {
		t.Errorf("asking nobody: %v", err)
	}

	block := newWorld(t, Config{Workers: 1})
	hold := make(chan struct{})
	busy := spawn(block, Options{Mailbox: 1, Overflow: Drop}, Func[question](func(*Context[question], question) { <-hold }))
	first := Ask(w.ctx, busy, about(0))
	for busy.Waiting() > 0 {
	}
	second, third := Ask(w.ctx, busy, about(0)), Ask(w.ctx, busy, about(0))
	if _, err := third.Await(w.ctx); !errors.Is(err, ErrMailboxFull) {
		t.Errorf("a dropped question: %v, want ErrMailboxFull", err)
	}
	busy.StopNow()
	close(hold)
	for _, f := range []interface {
		Await(context.Context) (int, error)
	}{first, second} {
		if _, err := f.Await(w.ctx); !errors.Is(err, ErrNoReply) || !errors.Is(err, ErrStopped) {
			t.Errorf("asked one that was stopped now: %v", err)
		}
	}
}

// asked is a question as the handler sees it.
type asked struct {
	reply Reply[int]
	owed  int // replies owed for earlier questions
}

// Rule: late replies and replies of askers that have given up do not hold memory forever. Askers
// that still wait get an error at the end.
func TestOwedRepliesArePruned(t *testing.T) {
	for name, ask := range map[string]func(w *world, r Ref[question], saw chan asked) asked{
		"answered late": func(w *world, r Ref[question], saw chan asked) asked {
			f := Ask(w.ctx, r, about(1))
			s := wait(w, "the question", saw)
			s.reply.Send(1)
			if _, err := f.Await(w.ctx); err != nil {
				w.t.Error(err)
			}
			return s
		},
		"given up": func(w *world, r Ref[question], saw chan asked) asked {
			f := Ask(w.ctx, r, about(1))
			s := wait(w, "the question", saw)
			f.Discard()
			return s
		},
		"the wait given up": func(w *world, r Ref[question], saw chan asked) asked {
			ctx, cancel := context.WithCancel(w.ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := AskWait(ctx, r, about(1))
				ended <- err
			}()
			s := wait(w, "the question", saw)
			cancel()
			if err := wait(w, "the end of the wait", ended); !errors.Is(err, context.Canceled) {
				w.t.Error(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			saw := make(chan asked, 1)
			r := spawn[question](w, Options{}, Func[question](func(ctx *Context[question], q question) {
				saw <- asked{q.reply, len(ctx.cell.owed)}
			}))
			waits := Ask(w.ctx, r, about(1))
			wait(w, "the question of who waits", saw)
			most := 0
			for range 10 * pruneOwed {
				most = max(most, ask(w, r, saw).owed)
			}
			if most > pruneOwed {
				t.Errorf("%d owed replies were kept, of 1 that somebody waits for", most)
			}
			r.Stop()
			if _, err := waits.Await(w.ctx); !errors.Is(err, ErrNoReply) || !errors.Is(err, ErrStopped) {
				t.Errorf("who waited was told %v, want %v and %v", err, ErrNoReply, ErrStopped)
			}
		})
	}
}

// Rule: an instance does not owe the replies of the one before: those askers have had an error.
func TestARestartedActorOwesNothing(t *testing.T) {
	clock := newFakeClock()
	w := newWorld(t, Config{Clock: clock})
	saw := make(chan asked, 1)
	r := spawn[question](w, Options{}, Func[question](func(ctx *Context[question], q question) {
		saw <- asked{q.reply, len(ctx.cell.owed)}
		if q.n == 2 {
			panic(errBoom)
		}
	}))
	for n, owed := range []int{0, 1, 0} { // the second question ends the instance
		f := Ask(w.ctx, r, about(n+1))
		if s := wait(w, "the question", saw); s.owed != owed {
			t.Errorf("at question %d the actor owes %d replies, want %d", n+1, s.owed, owed)
		}
		if n == 1 {
			clock.move(wait(w, "the backoff", clock.made))
		}
		defer f.Discard()
	}
}

// Rule: a handler that waits for an answer with its context, or with one that never ends, is
// refused; a handler that asks itself would wait forever.
func TestAskWaitInHandlerIsRefused(t *testing.T) {
	w := newWorld(t, Config{})
	asker := make(chan error, 2)
	self := make(chan Ref[do], 1)
	r := spawn[do](w, Options{}, Func[do](func(ctx *Context[do], fn do) { fn(ctx) }))
	self <- r
	w.must("telling", r.Tell(w.ctx, func(ctx *Context[do]) {
		me := <-self
		for _, with := range []context.Context{ctx, context.Background()} {
			_, err := AskWait(with, me, func(Reply[int]) do { return func(*Context[do]) {} })
			asker <- err
		}
	}))
	for range 2 {
		if err := wait(w, "the answer", asker); !errors.Is(err, ErrWouldDeadlock) {
			t.Errorf("asking itself and waiting: %v, want ErrWouldDeadlock", err)
		}
	}
}

// Rule: in steady state a question and its answer allocate nothing, and neither does a question
// that is given up without an answer.
func TestAskAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := newWorld(t, Config{})
	r := spawn[question](w, Options{}, &oracle{})
	saw := make(chan int, 1)
	mute := spawn[question](w, Options{}, Func[question](func(_ *Context[question], q question) { saw <- q.n }))
	ctx := context.Background()
	answered, silent := about(3), about(0)
	if n := testing.AllocsPerRun(10_000, func() {
		if _, err := Ask(ctx, r, answered).Await(ctx); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per question, want 0", n)
	}
	if n := testing.AllocsPerRun(10_000, func() {
		f := Ask(ctx, mute, silent)
		<-saw
		f.Discard()
	}); n > 0 {
		t.Errorf("%v allocations per question that is given up, want 0", n)
	}
}

// countedOwed is an owed reply that its asker waits for, and counts how often it is examined.
type countedOwed struct{ examined *int }

func (o countedOwed) fail(error)   {}
func (o countedOwed) free()        {}
func (o countedOwed) wanted() bool { *o.examined++; return true }

// lostOwed is an owed reply whose asker gives up after it was asked for the first time.
type lostOwed struct {
	countedOwed
	given bool
}

func (o *lostOwed) wanted() bool {
	given := o.given
	o.given = true
	return !given
}

// Rule: the owed replies that are kept are at most twice those that askers wait for.
func TestFewOwedRepliesAreKeptForNobody(t *testing.T) {
	const waits = 1000
	var a core
	examined, most := 0, 0
	for range waits {
		a.owe(countedOwed{&examined})
	}
	for range 10 * waits {
		a.owe(&lostOwed{})
		most = max(most, len(a.owed))
	}
	if most > 2*waits {
		t.Errorf("%d owed replies were kept, want at most %d", most, 2*waits)
	}
}

// Rule: owing a reply has a constant amortized cost, also if all askers wait.
func TestOwedRepliesAreRarelyExamined(t *testing.T) {
	const n = 10000
	var a core
	examined := 0
	for range n {
		a.owe(countedOwed{&examined})
	}
	// Each is examined once when it comes; then as many as are owed, each time that their number doubled.
	if examined > 3*n {
		t.Errorf("%d owed replies were examined %d times, want at most three times each", n, examined)
	}
}
