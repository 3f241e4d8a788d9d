package soft

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestSRQStressRealTime: one goroutine posts, one per connection polls, others
// run the engine by sending: each message takes one receive and each receive
// comes back once. Under the race detector it also checks that they meet in
// atomic words only.
func TestSRQStressRealTime(t *testing.T) {
	const connections, messages, size = 3, 2000, 16
	x := share(t, connections, verbs.SRQAttr{MaxWR: size, MaxSGE: 4}, options{real: true, mtu: verbs.MTU1024})
	var received atomic.Int64 // counted by pollers, read by all to know the end
	var wg sync.WaitGroup
	end := time.Now().Add(stressEnd)
	late := func() bool { runtime.Gosched(); return time.Now().After(end) }
	const total = connections * messages
	wg.Go(func() { // the turn holder
		for id := uint64(0); received.Load() < total; {
			switch err := x.tryPost(id, x.b.sge(int(id%size)*2048, 2048)); {
			case err == nil:
				id++
			case !errors.Is(err, syscall.ENOMEM) || late():
				t.Errorf("posting receive %d: %v", id, err)
				return
			}
		}
	})
	var seen sync.Map
	for i := range connections {
		wg.Go(func() {
			b := x.bs[i]
			buf, _ := mem.Array[verbs.WC](b.wcs, b.wcs.Addr()+uint64(i)*8*verbs.SizeofWC, 8)
			for n := 0; n < messages; {
				got, err := verbs.Poll(b.rcq, buf)
				if err != nil || got == 0 && late() {
					t.Errorf("connection %d: %d of %d received: %v", i, n, messages, err)
					return
				}
				for _, c := range buf[:got] {
					if _, twice := seen.LoadOrStore(c.WRID, i); twice || c.Status != verbs.WCSuccess || c.QPNum != b.qp.Num() {
						t.Errorf("connection %d: receive %d, %v, queue pair 0x%x, twice %v", i, c.WRID, c.Status, c.QPNum, twice)
						return
					}
				}
				n += got
				received.Add(int64(got))
			}
		})
	}
	wg.Go(func() {
		if err := x.stressSends(messages, late); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
}

// stressSends sends n messages over each connection, in turn.
func (x *sharing) stressSends(n int, late func() bool) error {
	buf, _ := mem.Array[verbs.WC](x.a.wcs, x.a.wcs.Addr(), 64)
	sent, done, all := 0, 0, n*len(x.as)
	for done < all {
		if sent < all && sent-done < 32 {
			a := x.as[sent%len(x.as)]
			if _, err := a.post(a.send(uint64(sent), verbs.WRSend, verbs.SendSignaled, a.sge(0, 1500))); err != nil {
				return err
			}
			sent++
		}
		got, err := verbs.Poll(x.a.scq, buf)
		if err != nil || got == 0 && late() {
			return fmt.Errorf("%d of %d sends completed: %w", done, all, err)
		}
		for _, c := range buf[:got] {
			if c.Status != verbs.WCSuccess {
				return c.Err()
			}
		}
		done += got
	}
	return nil
}
