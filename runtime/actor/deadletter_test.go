package actor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// keeper is a system whose dead letters go to a full actor, which drops them.
type keeper[M any] struct {
	*world
	full Ref[M]
	let  chan struct{} // closed to let the full actor go on
}

// keepers makes n keepers. Each passes its dead letters on by the function pass, which is given the next keeper.
func keepers[M any](t *testing.T, n int, pass func(to Ref[M], l DeadLetter)) []*keeper[M] {
	ks := make([]*keeper[M], n)
	for i := range ks {
		w := newWorld(t, Config{})
		w.System.cfg.DeadLetters = func(l DeadLetter) { pass(ks[(i+1)%n].full, l) }
		k := &keeper[M]{world: w, let: make(chan struct{})}
		in := make(chan struct{}, 3)
		k.full = must.Get(Spawn(w.System, Options{Mailbox: 1, Overflow: Drop}, func() Handler[M] {
			return Func[M](func(*Context[M], M) {
				in <- struct{}{}
				<-k.let
			})
		}))(t)
		var none M
		w.must("telling", k.full.Tell(w.ctx, none))
		wait(w, "the handler", in)
		w.must("telling", k.full.Tell(w.ctx, none))
		ks[i] = k
		t.Cleanup(func() { close(k.let) })
	}
	return ks
}

// Rule: a dead letter that a call of DeadLetters causes on its goroutine is counted and not reported, also if the
// call is that of another system.
func TestDeadLettersThatTellFullActors(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n, " systems"), func(t *testing.T) {
			const most = 100 // the stack overflows some millions of calls later
			calls := 0
			ks := keepers(t, n, func(to Ref[string], l DeadLetter) {
				if calls++; calls < most {
					_ = to.Tell(context.Background(), fmt.Sprint(l.Name, l.Err))
				}
			})
			ks[0].must("telling", ks[0].full.Tell(ks[0].ctx, "dropped"))
			if calls != 1 {
				t.Errorf("a dropped message caused %d calls of DeadLetters, want 1", calls)
			}
			var all Stats
			for _, k := range ks {
				st := k.Stats()
				all.Dropped += st.Dropped
				all.DeadLetters += st.DeadLetters
				all.Unreported += st.Unreported
			}
			if want := (Stats{Dropped: 2, DeadLetters: 2, Unreported: 1}); all != want {
				t.Errorf("stats %+v, want %+v", all, want)
			}
		})
	}
}

// Rule: calls of DeadLetters beside others are not taken for calls within them.
func TestConcurrentDeadLettersAreReported(t *testing.T) {
	const senders = 8
	var inside sync.WaitGroup // all calls are in progress at the same time
	inside.Add(senders)
	var calls atomic.Int32
	k := keepers(t, 1, func(to Ref[int], _ DeadLetter) {
		if calls.Add(1) > senders {
			return
		}
		inside.Done()
		inside.Wait()
		_ = to.Tell(context.Background(), 0)
	})[0]
	var sent sync.WaitGroup
	for range senders {
		sent.Go(func() { k.must("telling", k.full.Tell(k.ctx, 0)) })
	}
	sent.Wait()
	if st := k.Stats(); calls.Load() != senders || st.Unreported != senders || st.DeadLetters != 2*senders {
		t.Errorf("%d of %d dropped messages were reported; stats %+v", calls.Load(), senders, st)
	}
}

// Rule: a DeadLetter that becomes a dead letter is not reported again, although other goroutines tell it.
func TestDeadLettersToldByGoroutines(t *testing.T) {
	const most = 100
	var told sync.WaitGroup
	var calls atomic.Int32
	k := keepers(t, 1, func(to Ref[DeadLetter], l DeadLetter) {
		if calls.Add(1) < most {
			told.Go(func() { _ = to.Tell(context.Background(), l) })
		}
	})[0]
	h := newWhole()
	close(h.let)
	h.on["bad"] = func(*Context[string]) { panic(errBoom) }
	r := spawn[string](k.world, Options{Restart: Restart{Most: -1}}, h)
	k.must("telling", r.Tell(k.ctx, "bad"))
	wait(k.world, "the end", r.Done())
	told.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("a failed message caused %d calls of DeadLetters, want 1", n)
	}
	if st := k.Stats(); st.DeadLetters != 2 || st.Unreported != 1 {
		t.Errorf("stats %+v, want 2 dead letters, 1 of them unreported", st)
	}
}
