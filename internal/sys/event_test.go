package sys

import (
	"sync"
	"testing"
)

func TestEventCountsSignals(t *testing.T) {
	e := newEvent(t)
	if (e.FD() == -1) != Portable {
		t.Errorf("FD is %d, portable %v", e.FD(), Portable)
	}
	for _, want := range []uint64{0, 1, 5, 0} {
		for range want {
			e.Signal()
		}
		if got := e.Drain(); got != want {
			t.Errorf("Drain = %d, want %d", got, want)
		}
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e.Signal()
	if got := e.Drain(); got != 0 {
		t.Errorf("Drain after Close = %d, want 0", got)
	}
}

// No signal is lost or duplicated between goroutines, and Close may come at any time.
func TestEventConcurrently(t *testing.T) {
	const senders, each = 4, 2000
	e := newEvent(t)
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				e.Signal()
			}
		})
	}
	total := uint64(0)
	for total < senders*each {
		total += e.Drain()
	}
	wg.Wait()
	if total += e.Drain(); total != senders*each {
		t.Errorf("%d signals arrived, want %d", total, senders*each)
	}
	for range senders {
		wg.Go(func() {
			for range each {
				e.Signal()
				e.Drain()
			}
		})
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
