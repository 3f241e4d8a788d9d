package futures

import (
	"context"
	"testing"
)

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

// A future is in one group; the group it is not in does not wait for it.
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
