package futures

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
)

// queue is an executor that keeps callbacks until run.
type queue []func()

func (q *queue) execute(fn func()) { *q = append(*q, fn) }

func (q *queue) run() {
	for len(*q) > 0 {
		fn := (*q)[0]
		*q = (*q)[1:]
		fn()
	}
}

func TestThenRunsOnce(t *testing.T) {
	calls := 0
	count := func(v int, err error) { calls++; want(t, "callback", v, err, 4, errOp) }
	p, f := New[int]()
	f.Then(count)
	if calls != 0 {
		t.Fatal("called before the settle")
	}
	p.Settle(4, errOp)
	Ready(4, errOp).Then(count)
	if calls != 2 {
		t.Fatalf("%d calls for two futures", calls)
	}
}

// With an executor no callback runs inside Settle, including those of derived futures.
func TestExecutor(t *testing.T) {
	var q queue
	pool := NewPool(Options[int]{Execute: q.execute})
	var got []string
	note := func(s string) { got = append(got, s) }

	p, f := pool.New(nil)
	Map(f, func(v int, err error) (string, error) { note("map"); return strconv.Itoa(v), err }).
		Then(func(s string, _ error) { note("then " + s) })
	p.Settle(1, nil)
	p2, f2 := pool.New(nil)
	All(f2).Then(func(o []Outcome[int], _ error) { note("all") })
	p2.Settle(2, nil)
	p3, f3 := pool.New(nil)
	Any(f3).Then(func(Indexed[int], error) { note("any") })
	p3.Settle(3, nil)
	pool.Ready(4, nil).Then(func(int, error) { note("ready") })
	if len(got) != 0 {
		t.Fatalf("%v ran outside of the executor", got)
	}
	q.run()
	if want := []string{"map", "all", "any", "ready", "then 1"}; !slices.Equal(got, want) {
		t.Fatalf("ran %v, want %v", got, want)
	}
}

func TestMap(t *testing.T) {
	p, f := New[int]()
	m := Map(f, func(v int, err error) (string, error) { return strconv.Itoa(v), errors.Join(err, errOp) })
	if f.Valid() || m.Settled() {
		t.Fatal("Map consumes its argument and waits for it")
	}
	p.Settle(7, nil)
	s, err := m.Await(context.Background())
	want(t, "Await", s, err, "7", errOp)
}

func TestAll(t *testing.T) {
	p1, f1 := New[int]()
	p2, f2 := New[int]()
	all := All(f1, f2, Future[int]{}, Ready(3, nil))
	p2.Settle(2, errOp)
	if all.Settled() {
		t.Fatal("All settled before the last future")
	}
	p1.Settle(1, nil)
	out, err := all.Await(context.Background())
	if w := []Outcome[int]{{1, nil}, {2, errOp}, {0, ErrInvalid}, {3, nil}}; err != nil || !slices.Equal(out, w) {
		t.Fatalf("All = %v, %v; want %v", out, err, w)
	}
	if out, err := All[int]().Await(ended()); len(out) != 0 || err != nil {
		t.Fatalf("All of none = %v, %v", out, err)
	}
}

// Each result of the arguments is taken or disposed of, once.
func TestDerivedDispose(t *testing.T) {
	var got []int
	pool := NewPool(Options[int]{Dispose: func(v int, err error) { got = append(got, v) }})
	check := func(what string, want ...int) {
		t.Helper()
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("%s: disposed of %v, want %v", what, got, want)
		}
		got = nil
	}
	p1, f1 := pool.New(nil)
	p2, f2 := pool.New(nil)
	first := Any(f1, f2, pool.Ready(3, errOp))
	p2.Settle(2, nil)
	x, err := first.Await(context.Background())
	want(t, "Any", x, err, Indexed[int]{2, 3}, errOp)
	p1.Settle(1, nil)
	check("Any", 1, 2)

	p1, f1 = pool.New(nil)
	p2, f2 = pool.New(nil)
	Any(f1, f2).Discard()
	p1.Settle(1, nil)
	p2.Settle(2, nil)
	check("a discarded Any", 1, 2)

	p1, f1 = pool.New(nil)
	all := All(f1, pool.Ready(2, nil), Future[int]{})
	all.Discard()
	p1.Settle(1, nil)
	check("a discarded All", 1, 2) // and nothing for the zero handle

	x, err = Any[int]().Await(ended())
	want(t, "Any of none", x.Index, err, -1, ErrEmpty)
}

// Awaiting a derived future calls the driver of its source.
func TestDerivedDriver(t *testing.T) {
	for name, derive := range map[string]func(Future[int]) func() error{
		"Map": func(f Future[int]) func() error {
			m := Map(f, func(v int, err error) (int, error) { return v, err })
			return func() error { _, err := m.Await(context.Background()); return err }
		},
		"All": func(f Future[int]) func() error {
			m := All(Ready(1, nil), f)
			return func() error { _, err := m.Await(context.Background()); return err }
		},
		"Any": func(f Future[int]) func() error {
			m := Any(f)
			return func() error { _, err := m.Await(context.Background()); return err }
		},
		"Group": func(f Future[int]) func() error {
			var g Group
			if err := errors.Join(Add(&g, Ready(1, nil)), Add(&g, f)); err != nil {
				t.Fatal(err)
			}
			return func() error { return g.Wait(context.Background()) }
		},
	} {
		d := &turn{}
		p, f := NewPool(Options[int]{}).New(d)
		await := derive(f)
		d.post(func() { p.Settle(1, nil) }) // only a driving goroutine does it: without one, this test hangs
		if err := await(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Wait returns after the last settle, not before, and the group can be used again.
func TestGroup(t *testing.T) {
	var g Group
	pool := NewPool(Options[int]{})
	if err := g.Wait(ended()); err != nil {
		t.Fatalf("Wait of an empty group: %v", err)
	}
	for round := range 3 {
		ps, fs := make([]Promise[int], 5), make([]Future[int], 5)
		for i := range ps {
			ps[i], fs[i] = pool.New(nil)
			if i == 1 {
				ps[i].Settle(i, nil)
			}
			if err := Add(&g, fs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range ps[:4] {
			ps[i].Settle(i, nil)
		}
		if err := g.Wait(ended()); err != context.Canceled {
			t.Fatalf("round %d: Wait with one unsettled = %v, want the context's error", round, err)
		}
		result := make(chan error, 1)
		go func() { result <- g.Wait(context.Background()) }()
		until(t, "parked", func() bool { return g.word.Load()&bitParked != 0 })
		if err := Add(&g, fs[0]); err != ErrAwaited {
			t.Fatalf("Add during Wait = %v, want ErrAwaited", err)
		}
		if err := g.Wait(context.Background()); err != ErrAwaited {
			t.Fatalf("second Wait = %v, want ErrAwaited", err)
		}
		ps[4].Settle(4, nil)
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		for i, f := range fs {
			v, err, ok := f.Poll()
			want(t, "Poll", v, err, i, nil)
			if !ok {
				t.Fatalf("future %d is not settled after Wait", i)
			}
		}
	}
}

// A future is in one group; another group does not wait for it.
func TestGroupOnce(t *testing.T) {
	var a, b Group
	p, f := New[int]()
	if err := Add(&a, f); err != nil {
		t.Fatal(err)
	}
	if err := Add(&b, f); err != ErrAwaited {
		t.Fatalf("Add to a second group = %v, want ErrAwaited", err)
	}
	if err := b.Wait(ended()); err != nil {
		t.Fatalf("Wait of the second group = %v, it holds nothing", err)
	}
	f.Discard() // the group still waits for the settle
	if err := a.Wait(ended()); err != context.Canceled {
		t.Fatalf("Wait = %v, want the context's error", err)
	}
	p.Settle(1, nil)
	if err := a.Wait(ended()); err != nil {
		t.Fatalf("Wait after the settle of a discarded future = %v", err)
	}
}
