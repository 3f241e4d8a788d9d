package futures

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

var errOp = errors.New("the operation's own error")

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// want fails the test unless a result is as given.
func want[T comparable](t *testing.T, what string, v T, err error, wantV T, wantErr error) {
	t.Helper()
	if v != wantV || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		t.Fatalf("%s = %v, %v; want %v, %v", what, v, err, wantV, wantErr)
	}
}

func TestSettleOnce(t *testing.T) {
	p, f := New[int]()
	if !p.Valid() || !p.Settle(1, errOp) || p.Valid() {
		t.Fatal("the first Settle is the one that counts")
	}
	if p.Settle(2, nil) {
		t.Fatal("a second Settle must return false")
	}
	v, err := f.Await(ended())
	want(t, "Await with an ended context on a settled future", v, err, 1, errOp)
	if p.Settle(3, nil) || (Promise[int]{}).Settle(1, nil) || (Promise[int]{}).Valid() {
		t.Fatal("a consumed or zero promise cannot be settled")
	}
}

// Rule: a promise is wanted until its future is discarded or it is settled; after a discard a
// goroutine that awaited before still wants it.
func TestWantedUntilDiscardedOrSettled(t *testing.T) {
	p, f := New[int]()
	if !p.Wanted() {
		t.Fatal("a new promise is not wanted")
	}
	f.Discard()
	if p.Wanted() || !p.Valid() {
		t.Fatal("a discarded future's promise must be valid and not wanted")
	}
	p, f = New[int]()
	ctx, cancel := context.WithCancel(t.Context())
	result := awaiting(ctx, t, f)
	f.Discard()
	if !p.Wanted() {
		t.Fatal("a goroutine awaits, and the promise is not wanted")
	}
	cancel()
	<-result
	if p.Wanted() {
		t.Fatal("the last awaiter of a discarded future left, and the promise is wanted")
	}
	p, _ = New[int]()
	p.Settle(1, nil)
	if p.Wanted() || (Promise[int]{}).Wanted() {
		t.Fatal("a settled or zero promise is wanted")
	}
}

func TestAwaitCancelConsumesNothing(t *testing.T) {
	p, f := New[int]()
	for range 2 {
		v, err := f.Await(ended())
		want(t, "Await", v, err, 0, context.Canceled)
	}
	if _, err, ok := f.Poll(); ok || err != nil {
		t.Fatalf("Poll = %v, %v; want nothing yet", err, ok)
	}
	p.Settle(5, nil)
	v, err := f.Await(context.Background())
	want(t, "Await", v, err, 5, nil)
}

// awaiting starts an Await and returns when it waits.
func awaiting(ctx context.Context, t *testing.T, f Future[int]) (result chan error) {
	t.Helper()
	result = make(chan error, 1)
	go func() { _, err := f.Await(ctx); result <- err }()
	until(t, "parked", func() bool { return f.cell.word.Load()&bitParked != 0 })
	return result
}

// until yields until cond holds, and fails the test if it never does.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("never %s", what)
		}
	}
}

func TestMisuse(t *testing.T) {
	use := map[string]func(f Future[int]) error{
		"Await": func(f Future[int]) error { _, err := f.Await(context.Background()); return err },
		"Poll": func(f Future[int]) error {
			_, err, ok := f.Poll()
			if !ok {
				t.Fatal("Poll of a dead handle must say ok, or a polling loop never ends")
			}
			return err
		},
		"Then": func(f Future[int]) (err error) { f.Then(func(_ int, e error) { err = e }); return err },
		"Map": func(f Future[int]) error {
			_, err := Map(f, func(v int, err error) (int, error) { return v, err }).Await(context.Background())
			return err
		},
		"Add": func(f Future[int]) error { return Add(new(Group), f) },
		"All": func(f Future[int]) error { o, _ := All(f).Await(context.Background()); return o[0].Err },
		"Any": func(f Future[int]) error { _, err := Any(f).Await(context.Background()); return err },
	}
	consumed := Ready(1, nil)
	consumed.Poll()
	then, discarded := func() Future[int] { _, f := New[int](); return f }, func() Future[int] { _, f := New[int](); return f }
	thenF, discardedF := then(), discarded()
	thenF.Then(func(int, error) { t.Error("never settled") })
	discardedF.Discard()
	for name, c := range map[string]struct {
		f    Future[int]
		want error
	}{
		"zero": {Future[int]{}, ErrInvalid}, "consumed": {consumed, ErrConsumed},
		"then": {thenF, ErrConsumed}, "discarded": {discardedF, ErrDiscarded},
	} {
		for method, f := range use {
			err := f(c.f)
			var misuse *MisuseError
			if err != c.want || !errors.As(err, &misuse) {
				t.Errorf("%s of a %s handle: %v, want %v", method, name, err, c.want)
			}
		}
		if c.f.Valid() || !c.f.Settled() {
			t.Errorf("a %s handle is not valid and there is nothing to wait for", name)
		}
		select {
		case <-c.f.Done():
		default:
			t.Errorf("Done of a %s handle is open for ever", name)
		}
		c.f.Discard()
	}
}

func TestOneAwaiter(t *testing.T) {
	p, f := New[int]()
	first := awaiting(context.Background(), t, f)
	_, err := f.Await(context.Background())
	want(t, "second Await", 0, err, 0, ErrAwaited)
	_, err, ok := f.Poll()
	want(t, "Poll beside an awaiter", ok, err, false, ErrAwaited)
	f.Then(func(_ int, err error) { want(t, "Then beside an awaiter", 0, err, 0, ErrAwaited) })
	p.Settle(1, nil)
	want(t, "first Await", 0, <-first, 0, nil)
}

func TestDiscard(t *testing.T) {
	var got []int
	pool := NewPool(Options[int]{Dispose: func(v int, err error) {
		if err != errOp {
			t.Errorf("Dispose got error %v, want the operation's", err)
		}
		got = append(got, v)
	}})
	p, early := pool.New(nil)
	early.Discard()
	if len(got) != 0 || !p.Settle(1, errOp) {
		t.Fatal("a discarded future is disposed of when it settles, not before")
	}
	late := pool.Ready(2, errOp)
	late.Discard()
	late.Discard()
	p, cancelled := pool.New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	result := awaiting(ctx, t, cancelled)
	cancelled.Discard()
	cancel()
	want(t, "Await", 0, <-result, 0, context.Canceled)
	p.Settle(3, errOp)
	p, awaited := pool.New(nil)
	result = awaiting(context.Background(), t, awaited)
	awaited.Discard()
	p.Settle(4, errOp)
	want(t, "Await of one who stayed", 0, <-result, 0, errOp)
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Fatalf("disposed of %v, want [1 2 3]: each once, and not what an awaiter took", got)
	}
}

func TestDone(t *testing.T) {
	p, f := New[int]()
	done := f.Done()
	select {
	case <-done:
		t.Fatal("Done closed before the settle")
	default:
	}
	if f.Done() != done {
		t.Fatal("a second Done must return the same channel")
	}
	p.Settle(1, nil)
	<-done
	<-f.Done()
	v, err, ok := f.Poll()
	want(t, "Poll after Done", v, err, 1, nil)
	if !ok {
		t.Fatal("Done consumed the result")
	}
}

// An old handle stays invalid whatever its memory is used for, for every method.
func TestStaleHandle(t *testing.T) {
	pool := NewPool(Options[int]{Dispose: func(v int, _ error) { t.Errorf("disposed of %d", v) }})
	p1, f1 := pool.New(nil)
	p1.Settle(1, nil)
	f1.Poll()
	gen := f1.cell.word.Load() // as Pool.New does when it gets this cell
	p2, f2 := Promise[int]{f1.cell, gen}, Future[int]{f1.cell, gen}
	if p1.Valid() || p1.Settle(9, nil) {
		t.Fatal("an old promise settled a new operation")
	}
	f1.Discard()
	<-f1.Done()
	f1.Then(func(v int, err error) { want(t, "old Then", v, err, 0, ErrConsumed) })
	want(t, "old Add", 0, Add(new(Group), f1), 0, ErrConsumed)
	p2.Settle(2, nil)
	v, err, _ := f1.Poll()
	want(t, "old Poll", v, err, 0, ErrConsumed)
	v, err = f1.Await(context.Background())
	want(t, "old Await", v, err, 0, ErrConsumed)
	f1.Discard()
	v, err, _ = f2.Poll()
	want(t, "new Poll", v, err, 2, nil)
}

// The driver's answers: settled, declined, its own error, and a late ticket.
func TestDriverAnswers(t *testing.T) {
	var drive func(done <-chan struct{}, w *Waiter) error
	d := driverFunc(func(done <-chan struct{}, w *Waiter) error { return drive(done, w) })
	pool := NewPool(Options[int]{})

	p, f := pool.New(d)
	drive = func(<-chan struct{}, *Waiter) error { p.Settle(1, nil); return errOp }
	v, err := f.Await(context.Background())
	want(t, "Await whose driver settled and failed", v, err, 1, nil)

	p, f = pool.New(d)
	drive = func(<-chan struct{}, *Waiter) error { return errOp }
	_, err = f.Await(context.Background())
	want(t, "Await whose driver failed", 0, err, 0, errOp)

	var ticket Ticket
	drive = func(_ <-chan struct{}, w *Waiter) error { ticket = w.Ticket(); return nil }
	result := awaiting(context.Background(), t, f)
	if f.cell.Offer() || ticket.Offer() {
		t.Fatal("an offer reached a waiter whose driver had declined")
	}
	p.Settle(2, nil)
	want(t, "Await after a decline", 0, <-result, 0, nil)

	// The same memory waits in Drive for another operation: an old ticket is refused, a new one is
	// not.
	gen := f.cell.word.Load()
	p, f = Promise[int]{f.cell, gen}, Future[int]{f.cell, gen}
	f.cell.driver = d
	fresh := make(chan Ticket, 1)
	drive = func(done <-chan struct{}, w *Waiter) error {
		fresh <- w.Ticket()
		if s := w.Park(done); s != SignalTurn {
			t.Errorf("Park = %v, want SignalTurn", s)
		}
		p.Settle(3, nil)
		return nil
	}
	result = awaiting(context.Background(), t, f)
	if ticket.Offer() || (Ticket{}).Offer() {
		t.Fatal("an expired or zero ticket was accepted")
	}
	if !(<-fresh).Offer() {
		t.Fatal("an offer to a parked waiter was refused")
	}
	want(t, "Await", 0, <-result, 0, nil)
}

type driverFunc func(<-chan struct{}, *Waiter) error

func (d driverFunc) Drive(done <-chan struct{}, w *Waiter) error { return d(done, w) }

// rudeEnds are the ways a goroutine leaves a function without returning from it.
var rudeEnds = map[string]func(){"panic": func() { panic(errOp) }, "goexit": runtime.Goexit}

// aside calls fn on a goroutine of its own, which may end in fn.
func aside(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}

// Rule: if the goroutine of an Await ends in the driver, the future is discarded: its result,
// present or future, goes to Dispose once.
func TestTheEndOfAnAwaiterDiscards(t *testing.T) {
	for name, end := range rudeEnds {
		for _, settled := range []bool{false, true} {
			var disposed []int
			pool := NewPool(Options[int]{Dispose: func(v int, _ error) { disposed = append(disposed, v) }})
			var p Promise[int]
			p, f := pool.New(driverFunc(func(<-chan struct{}, *Waiter) error {
				if settled {
					p.Settle(7, nil)
				}
				end()
				return nil
			}))
			aside(func() { _, _ = f.Await(context.Background()) })
			p.Settle(7, nil)
			if len(disposed) != 1 || disposed[0] != 7 {
				t.Errorf("%s, settled %v: %v went to Dispose, want [7]", name, settled, disposed)
			}
			if _, err := f.Await(context.Background()); !errors.Is(err, ErrConsumed) {
				t.Errorf("%s, settled %v: Await afterwards: %v, want ErrConsumed", name, settled, err)
			}
		}
	}
}

// rudeContext ends in Done or Err.
type rudeContext struct {
	context.Context
	done, err func()
}

func (c rudeContext) Done() <-chan struct{} { c.done(); return c.Context.Done() }
func (c rudeContext) Err() error            { c.err(); return c.Context.Err() }

// Rule: a context's methods are called before the future is awaited and after it: if they do not
// return, the future and the group are as before. A nil context is refused.
func TestContextsKeepNothing(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	nothing := func() {}
	for name, end := range rudeEnds {
		for _, ctx := range []context.Context{rudeContext{ended, end, nothing}, rudeContext{ended, nothing, end}} {
			p, f := New[int]()
			var g Group
			if err := Add(&g, f); err != nil {
				t.Fatal(err)
			}
			aside(func() { _, _ = f.Await(ctx) })
			aside(func() { _ = g.Wait(ctx) })
			p.Settle(7, nil)
			if err := g.Wait(context.Background()); err != nil {
				t.Errorf("%s: Wait afterwards: %v", name, err)
			}
			if v, err := f.Await(context.Background()); v != 7 || err != nil {
				t.Errorf("%s: Await afterwards: %d, %v", name, v, err)
			}
		}
	}
	var none context.Context
	_, f := New[int]()
	if _, err := f.Await(none); !errors.Is(err, ErrNilContext) {
		t.Errorf("Await(nil): %v, want ErrNilContext", err)
	}
	if err := new(Group).Wait(none); !errors.Is(err, ErrNilContext) {
		t.Errorf("Wait(nil): %v, want ErrNilContext", err)
	}
}
