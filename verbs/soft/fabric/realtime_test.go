package fabric

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// patience is the timeout of a test; it only passes when the test fails.
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

// pingWindow bounds a pinger's unanswered requests: an endpoint that sends more than the link holds
// loses the rest.
const pingWindow = 512

// pinger sends one request per kick and counts answers.
type pinger struct {
	port     *Port
	route    *Route
	payload  []byte
	pending  atomic.Int64 // requests to send: set by any goroutine, taken by the runner
	answered atomic.Int64
	sent     int64
	held     atomic.Int64
}

func (e *pinger) PacketDone(*Packet) { e.held.Add(-1) }

func (e *pinger) Progress(time.Duration) (time.Duration, bool) {
	for k := e.port.Take(); k != nil; k = e.port.Take() {
		k.Release()
		e.answered.Add(1)
	}
	for ; e.pending.Load() > 0 && e.sent-e.answered.Load() < pingWindow; e.sent++ {
		e.pending.Add(-1)
		k := e.port.Get()
		k.SetHeader(&wire.Header{Opcode: wire.RCWriteOnly, VA: 1, RKey: 2, Length: uint32(len(e.payload))})
		k.AddRef(e.payload)
		k.Holder = e
		e.held.Add(1)
		e.port.SendTo(e.route, k)
	}
	return 0, false
}

// newPing returns a pinger at node 0, with an answering toy at node 1.
func newPing(t testing.TB, f *Fabric) *pinger {
	e := &pinger{payload: make([]byte, 8)}
	p := must.Get(f.Attach(gid(0), "pinger", e))(t)
	e.port = p
	t.Cleanup(p.Detach)
	attachAt(t, f, 1, &toy{answers: true})
	p.Exclusive(func() { e.route = p.Route(wire.To(gid(1))) })
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
	// Two endpoints that answer every packet never become quiet: Kick still returns, and the
	// fabric's goroutine continues.
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
