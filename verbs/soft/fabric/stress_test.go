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

func TestExclusiveExcludesTurns(t *testing.T) {
	f := New(Config{})
	inside := 0 // not atomic: the race detector sees two at once
	e := &toy{onTurn: func(time.Duration) { inside++ }}
	attach(t, f, e)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 500 {
				switch i % 3 {
				case 0:
					e.port.Kick()
				case 1:
					e.port.Exclusive(func() { inside++ })
				default:
					if e.port.Enter() {
						inside++
						e.port.Run()
					}
				}
			}
		})
	}
	wg.Wait()
	e.port.Exclusive(func() {
		if inside < 2*500+2*500 { // each Exclusive counts itself and the run after it
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
	// Some requests may be with the pacemaker; all are answered without a further call.
	for limit := time.Now().Add(patience); e.answered.Load() != goroutines*each; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d requests answered", e.answered.Load(), goroutines*each)
		}
	}
	if e.held.Load() != 0 {
		t.Errorf("%d payloads are still held", e.held.Load())
	}
}

// TestConcurrentFaults uses many nodes and goroutines, changing scripts and ports that come and go;
// every holder is told once, contents do not change, nothing hangs.
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
