package fabric

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// patience is how long a test waits for what must happen; it is waited out
// only when the test fails.
const patience = 20 * time.Second

// await waits for ch.
func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %v", what, patience)
	}
}

// pinger sends one request per kick and counts answers.
type pinger struct {
	port     *Port
	route    *Route
	payload  []byte
	pending  atomic.Int64 // requests to send: set by anyone, taken in the turn
	answered atomic.Int64
	held     atomic.Int64
}

func (e *pinger) PacketDone(*Packet) { e.held.Add(-1) }

func (e *pinger) Turn(time.Duration) (time.Duration, bool) {
	for n := e.pending.Swap(0); n > 0; n-- {
		k := e.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCWriteOnly, VA: 1, RKey: 2, Length: uint32(len(e.payload))})
		k.AddRef(e.payload)
		k.Holder = e
		e.held.Add(1)
		e.port.SendTo(e.route, k)
	}
	for k := e.port.Take(); k != nil; k = e.port.Take() {
		k.Release()
		e.answered.Add(1)
	}
	return 0, false
}

// newPing is a pinger at node 0 and an answering toy at node 1.
func newPing(t testing.TB, f *Fabric) *pinger {
	e := &pinger{payload: make([]byte, 8)}
	p, err := f.Attach(gid(0), "pinger", e)
	if err != nil {
		t.Fatal(err)
	}
	e.port = p
	t.Cleanup(p.Detach)
	attachAt(t, f, 1, &toy{answers: true})
	p.Exclusive(func() { e.route = p.Route(gid(1)) })
	return e
}

func TestKickRunsTheWholeExchangeOnTheCallersGoroutine(t *testing.T) {
	f := New(Config{})
	e := newPing(t, f)
	e.pending.Add(1)
	e.port.Kick()
	if n := e.answered.Load(); n != 1 {
		t.Errorf("%d answers when Kick returned, want 1: request, answer and its taking are its work", n)
	}
	if e.held.Load() != 0 {
		t.Error("a payload is still held after the exchange")
	}
}

func TestExchangeAllocatesNothing(t *testing.T) {
	f := New(Config{})
	e := newPing(t, f)
	psnsKept := (*f.ports.Load())[1].ep.(*toy)
	ping := func() {
		e.pending.Add(4)
		e.port.Kick()
		psnsKept.psns = psnsKept.psns[:0]
	}
	ping()
	if n := testing.AllocsPerRun(1000, ping); n != 0 {
		t.Errorf("an exchange of four packets each way allocates %v times", n)
	}
}

func TestEndlessExchangeLeavesTheKicker(t *testing.T) {
	// Two endpoints that answer every packet never become quiet: Kick returns
	// all the same, and the fabric's goroutine goes on.
	f := New(Config{})
	const rounds = 20 * kickBudget
	done := make(chan struct{})
	n := 0
	var toys [2]*toy
	for i := range toys {
		toys[i] = &toy{}
		toys[i].onPacket = func(*Packet) {
			if n++; n == rounds {
				close(done)
			}
			if n < rounds {
				toys[i].send(gid(1-i), wire.RCSendOnly, 0, nil, nil)
			}
		}
	}
	attach(t, f, toys[:]...)
	sendMany(toys[0], 1, 1, wire.RCSendOnly)
	await(t, "the end of the exchange", done)
}

func TestDeadlinesWakeTheEndpoint(t *testing.T) {
	f := New(Config{})
	e := &toy{}
	done := make(chan struct{})
	fired := 0
	e.onTurn = func(now time.Duration) {
		switch {
		case e.deadline == 0 && fired == 0:
		case now >= e.deadline:
			if fired++; fired == 5 {
				close(done)
			}
		default:
			return
		}
		if e.deadline = 0; fired < 5 {
			e.deadline = now + 200*time.Microsecond
		}
	}
	attach(t, f, e)
	e.port.Kick()
	await(t, "the fifth deadline", done)
}

func TestMovingADeadlineLaterRingsNobody(t *testing.T) {
	f := New(Config{})
	e := &toy{deadline: time.Hour}
	attach(t, f, e)
	e.port.Kick()
	asleep := func() bool {
		for limit := time.Now().Add(patience); f.pace.wakeAt.Load() != int64(time.Hour); runtime.Gosched() {
			if time.Now().After(limit) {
				return false
			}
		}
		return len(f.pace.bell) == 0
	}
	if !asleep() {
		t.Fatalf("the pacemaker sleeps until %d, want the deadline %d", f.pace.wakeAt.Load(), time.Hour)
	}
	for range 100 {
		e.inTurn(func() { e.deadline += time.Second })
		if len(f.pace.bell) != 0 || f.pace.wakeAt.Load() != int64(time.Hour) {
			t.Fatal("a deadline that moved later woke the pacemaker")
		}
	}
	e.inTurn(func() { e.deadline = 30 * time.Minute })
	for limit := time.Now().Add(patience); f.pace.wakeAt.Load() != int64(30*time.Minute); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatal("a deadline that moved earlier did not wake the pacemaker")
		}
	}
}

func TestABusyEndpointDoesNotKeepThePacemakerAwake(t *testing.T) {
	f := New(Config{})
	e := &toy{}
	attach(t, f, e)
	e.port.Exclusive(func() {
		e.port.deadline.Store(1) // long past
		f.pace.bell <- struct{}{}
		for limit := time.Now().Add(patience); len(f.pace.bell) != 0 || f.pace.wakeAt.Load() != never; runtime.Gosched() {
			if time.Now().After(limit) {
				t.Fatal("the pacemaker goes round and round for a deadline whose endpoint somebody else runs")
			}
		}
	})
}

func TestDelayedPacketsArriveInRealTime(t *testing.T) {
	f := New(Config{})
	a, b := &toy{}, &toy{}
	done := make(chan struct{})
	b.onPacket = func(*Packet) {
		if len(b.psns) == 9 {
			close(done)
		}
	}
	attach(t, f, a, b)
	f.SetAll(Link{Delay: 100 * time.Microsecond, Jitter: 300 * time.Microsecond})
	var c counter
	a.inTurn(func() {
		for i := range 10 {
			a.send(gid(1), wire.RCSendOnly, wire.PSN(i), u64(1), &c)
		}
	})
	if c.done.Load() != 10 {
		t.Errorf("%d of 10 holders told when the packets went to wait: they must have their own copy", c.done.Load())
	}
	await(t, "the arrival of ten delayed packets", done)
}

func TestWakeDoesNotRunOnTheCallersGoroutine(t *testing.T) {
	f := New(Config{})
	done := make(chan struct{}, 1)
	e := &toy{onTurn: func(time.Duration) { done <- struct{}{} }}
	attach(t, f, e)
	other := &toy{onTurn: func(time.Duration) { e.port.Wake() }}
	attachAt(t, f, 1, other)
	other.port.Kick()
	await(t, "the turn of the endpoint that was woken", done)
}

func TestTheLastDetachEndsTheGoroutine(t *testing.T) {
	f := New(Config{})
	for range 3 { // it starts anew each time
		before := runtime.NumGoroutine()
		a, b := &toy{deadline: time.Hour}, &toy{}
		pa, err := f.Attach(gid(0), "a", a)
		if err != nil {
			t.Fatal(err)
		}
		a.port = pa
		pb, err := f.Attach(gid(1), "b", b)
		if err != nil {
			t.Fatal(err)
		}
		b.port = pb
		f.SetAll(Link{Delay: time.Hour})
		sendMany(a, 1, 3, wire.RCSendOnly)
		pa.Detach()
		done := f.done
		select {
		case <-done:
			t.Fatal("the fabric's goroutine ended with a port attached")
		default:
		}
		pb.Detach()
		select {
		case <-done:
		default:
			t.Fatal("the fabric's goroutine runs after the last Detach")
		}
		// It has closed done as its last act; the scheduler may still count it.
		for limit := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(limit) {
				t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			}
		}
		if len(f.delay.waiting) != 0 || !f.delay.incoming.Empty() {
			t.Error("delayed packets outlive the last port")
		}
	}
}

func TestExclusiveExcludesTurns(t *testing.T) {
	f := New(Config{})
	inside := 0 // not atomic: the race detector sees two at once
	e := &toy{onTurn: func(time.Duration) { inside++ }}
	attach(t, f, e)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 500 {
				if i%2 == 0 {
					e.port.Kick()
				} else {
					e.port.Exclusive(func() { inside++ })
				}
			}
		})
	}
	wg.Wait()
	e.port.Exclusive(func() {
		if inside < 2*500+2*500 { // each Exclusive counts itself and the turn after it
			t.Errorf("%d runs, want at least 2000", inside)
		}
	})
}

func TestNoKickIsLost(t *testing.T) {
	f := New(Config{})
	e := newPing(t, f)
	const goroutines, each = 4, 2000
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				e.pending.Add(1)
				e.port.Kick()
			}
		})
	}
	wg.Wait()
	// Some of it may be with the pacemaker; all of it comes by itself.
	for limit := time.Now().Add(patience); e.answered.Load() != goroutines*each; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d requests answered", e.answered.Load(), goroutines*each)
		}
	}
	if e.held.Load() != 0 {
		t.Errorf("%d payloads are still held", e.held.Load())
	}
}

// TestConcurrentFaults: many nodes, goroutines, scripts changing and ports
// coming and going; every holder is told once, contents stay, nothing hangs.
func TestConcurrentFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := New(Config{Seed: seed})
	const nodes, perNode = 5, 1500
	pattern := bytes.Repeat([]byte{0x5a}, 100)
	toys := make([]*toy, nodes)
	for i := range toys {
		toys[i] = &toy{answers: true}
		toys[i].onPacket = func(k *Packet) {
			if got := payloadOf(k); len(got) > 0 && !bytes.Equal(got, pattern) {
				t.Errorf("a payload changed on the way: %x", got)
			}
		}
	}
	attach(t, f, toys...)
	var c counter
	var sent atomic.Int64
	var senders, chaos sync.WaitGroup
	for i, e := range toys {
		senders.Go(func() {
			for n := range perNode {
				e.inTurn(func() {
					e.send(gid((i+n)%nodes), wire.RCSendOnly, wire.PSN(n), pattern, &c)
					sent.Add(1)
				})
			}
		})
	}
	stop := make(chan struct{})
	chaos.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for {
			select {
			case <-stop:
				return
			default:
			}
			switch rng.IntN(6) {
			case 0:
				f.SetAll(Link{Loss: 0.1, Dup: 0.1, Reorder: 0.1, Jitter: 50 * time.Microsecond})
			case 1:
				f.SetAll(Link{})
			case 2:
				f.Partition([]verbs.GID{gid(0), gid(1)}, []verbs.GID{gid(2)})
			case 3:
				f.Heal()
			case 4:
				f.SetLink(gid(rng.IntN(nodes)), gid(rng.IntN(nodes)), Link{Rules: []Rule{{Every: 3, Dup: true, Delay: time.Microsecond}}})
			case 5: // a node that comes and goes
				e := &toy{answers: true}
				p, err := f.Attach(gid(nodes), "guest", e)
				if err != nil {
					t.Error(err)
					return
				}
				p.Exclusive(func() { e.port = p; e.send(gid(0), wire.RCSendOnly, 0, pattern, nil) })
				p.Detach()
			}
			runtime.Gosched()
		}
	})
	senders.Wait()
	close(stop)
	chaos.Wait()
	for _, e := range toys {
		e.port.Detach()
	}
	if c.done.Load() != sent.Load() {
		t.Errorf("%d holders told for %d packets", c.done.Load(), sent.Load())
	}
}

func BenchmarkPing(b *testing.B) {
	f := New(Config{})
	e := newPing(b, f)
	responder := (*f.ports.Load())[1].ep.(*toy)
	b.ReportAllocs()
	for b.Loop() {
		e.pending.Store(1)
		e.port.Kick()
		responder.psns = responder.psns[:0]
	}
	if e.answered.Load() < int64(b.N) {
		b.Fatalf("%d answers to %d pings", e.answered.Load(), b.N)
	}
}

func BenchmarkStream(b *testing.B) {
	const batch = 64
	f := New(Config{})
	e := newPing(b, f)
	responder := (*f.ports.Load())[1].ep.(*toy)
	for b.Loop() {
		e.pending.Store(batch)
		e.port.Kick()
		responder.psns = responder.psns[:0]
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/packet-pair")
}
