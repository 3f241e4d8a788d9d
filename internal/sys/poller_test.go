package sys

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
)

// soon is a deadline that is reached only after a lost wake-up.
func soon() time.Time { return time.Now().Add(30 * time.Second) }

// past makes Wait return without sleeping.
var past = time.Unix(1, 0)

func newPoller(t testing.TB) *Poller {
	t.Helper()
	p := must.Get(NewPoller())(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the poller: %v", err)
		}
	})
	return p
}

func newEvent(t testing.TB) *Event {
	t.Helper()
	e := must.Get(NewEvent())(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("closing the event: %v", err)
		}
	})
	return e
}

func attach(t testing.TB, p *Poller, s Source, key uint32) {
	t.Helper()
	if err := p.Attach(s, key); err != nil {
		t.Fatal(err)
	}
}

// look returns all keys that are ready now, sorted.
func look(t testing.TB, p *Poller) (all []uint32) {
	t.Helper()
	keys := make([]uint32, 16)
	n := must.Get(p.Wait(past, keys))(t)
	all = slices.Clone(keys[:n])
	slices.Sort(all)
	return all
}

// notifier is a source that announces itself, in every build.
type notifier struct {
	mu     sync.Mutex
	queued int
	ring   func()
}

func (s *notifier) FD() int { return -1 }

func (s *notifier) Notify(ring func()) {
	s.mu.Lock()
	s.ring = ring
	s.mu.Unlock()
	if ring != nil {
		ring()
	}
}

func (s *notifier) put() {
	s.mu.Lock()
	s.queued++
	ring := s.ring
	s.mu.Unlock()
	if ring != nil {
		ring()
	}
}

func (s *notifier) take() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, s.queued = s.queued, 0
	return n
}

func TestRingBeforeWaitIsKeptAndCoalesced(t *testing.T) {
	p := newPoller(t)
	keys := make([]uint32, 4)
	for range 1000 {
		p.Wake()
	}
	start := time.Now()
	if n, err := p.Wait(soon(), keys); n != 0 || err != nil {
		t.Fatalf("Wait after Ring = %d, %v; want 0, nil", n, err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("Wait after Ring took %v", d)
	}
	start = time.Now()
	if n, err := p.Wait(start.Add(20*time.Millisecond), keys); n != 0 || err != nil {
		t.Fatalf("Wait = %d, %v; want 0, nil", n, err)
	}
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Errorf("1000 Rings made Wait return twice: the second came after %v", d)
	}
}

// Each wait has its own deadline, also when it equals the previous one.
func TestDeadline(t *testing.T) {
	p := newPoller(t)
	keys := make([]uint32, 4)
	for range 3 {
		start := time.Now()
		deadline := start.Add(10 * time.Millisecond)
		for range 2 { // the second time it has passed
			if n, err := p.Wait(deadline, keys); n != 0 || err != nil {
				t.Fatalf("Wait = %d, %v; want 0, nil", n, err)
			}
			if time.Now().Before(deadline) {
				t.Fatalf("returned %v before the deadline", time.Until(deadline))
			}
		}
		// A passed deadline does not hide ready sources, nor affect the next Wait.
		p.Wake()
		if n, err := p.Wait(time.Time{}, keys); n != 0 || err != nil {
			t.Fatalf("Wait without a deadline = %d, %v; want 0, nil", n, err)
		}
	}
}

func TestSourcesWake(t *testing.T) {
	p := newPoller(t)
	e, s := newEvent(t), &notifier{}
	attach(t, p, e, 7)
	attach(t, p, s, 1<<31+9)
	look(t, p) // the announcement by Notify
	if got := look(t, p); len(got) != 0 {
		t.Fatalf("%v are ready, want none", got)
	}
	for _, c := range []struct {
		put  func()
		take func() int
		key  uint32
	}{{e.Signal, func() int { return int(e.Drain()) }, 7}, {s.put, s.take, 1<<31 + 9}} {
		keys := make([]uint32, 4)
		go c.put()
		for {
			n := must.Get(p.Wait(soon(), keys))(t)
			if n == 0 {
				continue
			}
			if n != 1 || keys[0] != c.key || c.take() != 1 {
				t.Fatalf("ready: %v, want %d with one event", keys[:n], c.key)
			}
			break
		}
		if look(t, p); c.take() != 0 { // the wake-up that came with it
			t.Fatal("the event came twice")
		}
		if got := look(t, p); len(got) != 0 {
			t.Fatalf("%v are ready after draining, want none", got)
		}
	}
	e.Signal()
	s.put()
	if got := look(t, p); !slices.Equal(got, []uint32{7, 1<<31 + 9}) {
		t.Fatalf("ready: %v, want both", got)
	}
	e.Drain()
	s.take()
	e.Signal() // announced, and not yet reported when it is detached
	s.put()
	for _, key := range []uint32{7, 1<<31 + 9} {
		if err := p.Detach(key); err != nil {
			t.Fatal(err)
		}
	}
	e.Signal()
	s.put()
	if got := look(t, p); len(got) != 0 {
		t.Fatalf("%v are ready after Detach, want none", got)
	}
}

// Events queued before Attach are reported.
func TestAttachSeesWhatIsQueued(t *testing.T) {
	p := newPoller(t)
	e, s := newEvent(t), &notifier{}
	e.Signal()
	s.put()
	attach(t, p, e, 1)
	attach(t, p, s, 2)
	if got := look(t, p); !slices.Equal(got, []uint32{1, 2}) {
		t.Fatalf("ready: %v, want both", got)
	}
}

func TestMoreSourcesThanKeys(t *testing.T) {
	p := newPoller(t)
	const count = 150
	events := make([]*Event, count)
	for i := range events {
		events[i] = newEvent(t)
		attach(t, p, events[i], uint32(i))
		events[i].Signal()
	}
	seen := map[uint32]bool{}
	keys := make([]uint32, 4)
	for range 10 * count {
		n := must.Get(p.Wait(past, keys))(t)
		for _, k := range keys[:n] {
			events[k].Drain()
			seen[k] = true
		}
		if len(seen) == count {
			return
		}
	}
	t.Errorf("%d of %d sources were reported", len(seen), count)
}

func TestPollerRefuses(t *testing.T) {
	p, e := newPoller(t), newEvent(t)
	attach(t, p, e, 1)
	if err := p.Attach(&notifier{}, 1); !errors.Is(err, ErrAttached) {
		t.Errorf("a key twice: %v, want ErrAttached", err)
	}
	if err := p.Detach(2); !errors.Is(err, ErrNotAttached) {
		t.Errorf("an unknown key: %v, want ErrNotAttached", err)
	}
	if _, err := p.Wait(past, nil); !errors.Is(err, ErrNoKeys) {
		t.Errorf("no room: %v, want ErrNoKeys", err)
	}
}

func TestCloseWakesWait(t *testing.T) {
	for range 50 {
		p := must.Get(NewPoller())(t)
		s := &notifier{}
		attach(t, p, s, 3)
		look(t, p)
		got := make(chan error)
		go func() {
			keys := make([]uint32, 1)
			for {
				if _, err := p.Wait(time.Time{}, keys); err != nil {
					got <- err
					return
				}
			}
		}()
		go p.Wake()
		runtime.Gosched()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-got; !errors.Is(err, ErrPollerClosed) {
			t.Fatalf("Wait = %v, want ErrPollerClosed", err)
		}
		p.Wake()
		if s.put(); s.ring != nil {
			t.Error("a closed poller still listens")
		}
		for what, err := range map[string]error{
			"Attach": p.Attach(s, 4), "Detach": p.Detach(3),
			"Wait": func() error { _, err := p.Wait(past, make([]uint32, 1)); return err }(),
		} {
			if !errors.Is(err, ErrPollerClosed) {
				t.Errorf("%s after Close: %v, want ErrPollerClosed", what, err)
			}
		}
	}
}

func rounds() int {
	if testing.Short() {
		return 10_000
	}
	return 100_000
}

// Two goroutines sleep alternately: each Wake must wake the other.
func TestPingPong(t *testing.T) {
	a, b := newPoller(t), newPoller(t)
	var ball atomic.Int64 // even: a's side; odd: b's
	end, limit := int64(rounds()), soon()
	play := func(p, other *Poller, mine int64) {
		keys := make([]uint32, 1)
		for {
			n := ball.Load()
			if n >= end {
				other.Wake()
				return
			}
			if n&1 == mine {
				ball.Store(n + 1)
				other.Wake()
				continue
			}
			if _, err := p.Wait(limit, keys); err != nil || time.Now().After(limit) {
				t.Errorf("stuck at %d of %d: %v", ball.Load(), end, err)
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { play(a, b, 0) })
	wg.Go(func() { play(b, a, 1) })
	wg.Wait()
}

// Producers call Wake and Signal at any moment while the waiter goes to sleep: each waits until
// its announcement was seen, so a lost wake-up stops it.
func TestNoWakeUpIsLost(t *testing.T) {
	p := newPoller(t)
	e, s := newEvent(t), &notifier{}
	attach(t, p, e, 1)
	attach(t, p, s, 2)
	var rung, heard, signaled, put atomic.Int64
	each, limit := int64(rounds()/4), soon()
	var wg sync.WaitGroup
	produce := func(announce func(), sent *atomic.Int64) {
		wg.Go(func() {
			for i := int64(1); i <= each; i++ {
				announce()
				for spins := 0; sent.Load() < i; spins++ {
					if runtime.Gosched(); spins%1024 == 0 && time.Now().After(limit) {
						t.Errorf("announcement %d of %d was not seen", i, each)
						return
					}
				}
			}
		})
	}
	produce(func() { rung.Add(1); p.Wake() }, &heard)
	produce(e.Signal, &signaled)
	produce(s.put, &put)
	done := make(chan struct{})
	go func() {
		defer close(done)
		keys := make([]uint32, 2)
		for heard.Load() < each || signaled.Load() < each || put.Load() < each {
			n, err := p.Wait(limit, keys)
			if err != nil || time.Now().After(limit) {
				t.Errorf("Wait: %v; heard %d, signaled %d, put %d of %d", err, heard.Load(), signaled.Load(), put.Load(), each)
				return
			}
			heard.Store(rung.Load())
			for _, k := range keys[:n] {
				if k == 1 {
					signaled.Add(int64(e.Drain()))
				} else {
					put.Add(int64(s.take()))
				}
			}
		}
	}()
	wg.Wait()
	<-done
}

func TestWaitAllocatesNothing(t *testing.T) {
	p := newPoller(t)
	e, s := newEvent(t), &notifier{}
	attach(t, p, e, 1)
	attach(t, p, s, 2)
	keys := make([]uint32, 4)
	bad := error(nil)
	wait := func(deadline time.Time) {
		if _, err := p.Wait(deadline, keys); err != nil {
			bad = err
		}
	}
	if n := testing.AllocsPerRun(200, func() {
		p.Wake()
		wait(time.Time{})
		e.Signal()
		wait(soon())
		e.Drain()
		s.put()
		wait(soon())
		s.take()
		wait(past)
		wait(time.Now().Add(50 * time.Microsecond)) // parks
	}); n != 0 || bad != nil {
		t.Errorf("%v allocations per turn, want 0; error %v", n, bad)
	}
}

func BenchmarkRingWait(b *testing.B) {
	p := newPoller(b)
	keys := make([]uint32, 4)
	for b.Loop() {
		p.Wake()
		if _, err := p.Wait(time.Time{}, keys); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	x, y := newPoller(b), newPoller(b)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		keys := make([]uint32, 1)
		for !stop.Load() {
			if _, err := y.Wait(time.Time{}, keys); err != nil {
				return
			}
			x.Wake()
		}
	}()
	keys := make([]uint32, 1)
	for b.Loop() {
		y.Wake()
		if _, err := x.Wait(time.Time{}, keys); err != nil {
			b.Fatal(err)
		}
	}
	stop.Store(true)
	y.Wake()
	<-done
}
