package runtime

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Rule: a Close whose context has ended cuts off and gives back everything all
// the same, and can be repeated.
func TestCloseWithAnEndedContextClosesAll(t *testing.T) {
	a, _ := connected(t, Config{Reactors: 2})
	if _, err := a.rt.Listen(":0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.rt.Close(endedContext()); err != nil {
			t.Errorf("closing at the deadline: %v", err)
		}
	}
}

// Rule: so does one whose peer is silent.
func TestCloseAtItsDeadlineWithASilentPeer(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, _ := connected(t, Config{Provider: p})
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	if _, err := a.SendBytes(testContext(t), []byte("x")); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := a.rt.Close(short); err != nil {
		t.Errorf("closing at the deadline: %v; objects %+v", err, a.rt.dev.Objects())
	}
}

// Rule: several goroutines may close a runtime; all wait for the end.
func TestConcurrentCloseIsOne(t *testing.T) {
	for range 10 {
		a, b := connected(t, Config{Reactors: 2})
		var wg sync.WaitGroup
		for range 3 {
			for _, rt := range []*Runtime{a.rt, b.rt} {
				wg.Go(func() {
					if err := rt.Close(testContext(t)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
}

// Rule: whoever receives on a connection that is gone is told why, though the
// runtime is closed.
func TestReceivingAfterCloseSaysWhy(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, _ := connected(t, Config{NoCallerDriving: parked})
		if err := a.rt.Close(testContext(t)); err != nil {
			t.Error(err)
		}
		_, err := a.RecvWait(testContext(t))
		mistake(t, "RecvWait", err, ErrConnClosed)
		f := a.Recv()
		<-f.Done()
		_, err = f.Await(testContext(t))
		mistake(t, "Recv", err, ErrConnClosed)
	}
}

// Rule: Done is closed when a connection takes no more operations, whoever ends
// it.
func TestDoneSaysThatAConnectionEnds(t *testing.T) {
	a, b := connected(t, Config{})
	select {
	case <-a.Done():
		t.Fatal("an open connection is done")
	default:
	}
	if err := a.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	<-b.Done()
	mistake(t, "closed", a.Err(), ErrConnClosed)
	mistake(t, "closed by the peer", b.Err(), ErrPeerClosed)
}

// Rule: a reactor that does not come to it does not hold Close up for ever.
func TestCloseOfABusyReactorSaysSo(t *testing.T) {
	a, b := connected(t, Config{})
	ln, err := a.rt.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	gate, held := make(chan struct{}), make(chan struct{})
	go a.sh.r.Do(context.Background(), func() { close(held); <-gate })
	<-held
	var wg sync.WaitGroup
	for what, end := range map[string]func(context.Context) error{"connection": a.Close, "listener": ln.Close} {
		wg.Go(func() {
			if err := end(endedContext()); !errors.Is(err, ErrReactorBusy) {
				t.Errorf("closing the %s: %v, want ErrReactorBusy", what, err)
			}
		})
	}
	wg.Wait()
	close(gate)
	for _, end := range []func(context.Context) error{a.Close, ln.Close, b.Close} {
		if err := end(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

// Rule: receive buffers that are mapped one by one are gone when Close returns.
func TestBigReceivesAreUnmapped(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 2, MessageSize: MaxPooled + 1}})
	ms := sendAndTake(t, a, b, 1)
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	b.rt.tidying.Wait()
	b.rt.mem.mu.Lock()
	mapped := b.rt.mem.bigs // not by Stats, which tidies up itself
	b.rt.mem.mu.Unlock()
	if mapped != 1 {
		t.Errorf("%d big buffers are mapped after the connection was closed, want that of the message", mapped)
	}
	release(t, ms...)
	if err := b.rt.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if _, bytes := mem.Live(); bytes > 64<<20 {
		t.Errorf("%d bytes are mapped", bytes)
	}
}

// Rule: waits that were given up are not kept.
func TestGivenUpReceivesAreNotKept(t *testing.T) {
	a, b := connected(t, Config{})
	first := b.Recv() // stays, so that those behind it are not met by giving out
	for range 5000 {
		if _, err := b.RecvWait(endedContext()); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	kept := 0
	if err := b.sh.r.Do(testContext(t), func() { b.match(); kept = len(b.wants) }); err != nil {
		t.Fatal(err)
	}
	if kept > 2*pruneFrom {
		t.Errorf("%d waits are kept, of 1", kept)
	}
	f, err := a.SendBytes(testContext(t), []byte("first"))
	done(t, f, err)
	m, err := first.Await(testContext(t))
	if err != nil || string(m.Data) != "first" {
		t.Fatalf("who waited got %q, %v", m.Data, err)
	}
	release(t, m)
}
