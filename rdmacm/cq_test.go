package rdmacm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (rdma_create_srq, ibv_post_srq_recv): the receives of a shared queue serve all its queue pairs.
// Each completes to the completion queue of the queue pair that took it. PostRecv goes there.
func TestSharedReceives(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(nil)
	must.Do(t, l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 8, MaxSGE: 1}))
	if err := l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 8}); err == nil {
		t.Error("an identifier has two shared receive queues")
	}
	in := r.memory(l, 64, (*ID).RegMsgs)
	var cs, ss [2]*ID
	for i := range cs {
		cs[i] = r.dialer(at, attr())
		done := make(chan error, 1)
		go func() { done <- cs[i].Connect(r.ctx, nil) }()
		ss[i] = r.owns(must.Get(l.GetRequest(r.ctx))(t))
		a := attr()
		a.SRQ = l.SRQ()
		must.Do(t, ss[i].CreateQP(nil, a))
		must.Do(t, ss[i].Accept(r.ctx, nil))
		must.Do(t, <-done)
	}
	must.Do(t, ss[0].PostRecv(1, in.Bytes()[:8], in))
	if n, err := l.SRQ().PostSRQRecv([]RecvWR{{2, []verbs.SGE{in.SGE(8, 8)}}}); n != 1 || err != nil {
		t.Fatalf("PostSRQRecv posted %d, error %v", n, err)
	}
	if n, err := ss[0].PostRecvList([]RecvWR{{3, []verbs.SGE{in.SGE(16, 8)}}}); n != 0 || !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("ibv_post_recv with a shared receive queue posted %d, error %v; want EINVAL", n, err)
	}
	got := map[uint64]bool{}
	for i := range cs {
		must.Do(t, cs[i].PostSend(0, []byte("hello"), nil, 0))
		wc := must.Get(ss[i].GetRecvComp(r.ctx))(t)
		if wc.Status != verbs.WCSuccess || wc.QPNum != ss[i].QP().Num() {
			t.Errorf("receive %d of queue pair 0x%x with status %v, want one of 0x%x", wc.WRID, wc.QPNum, wc.Status, ss[i].QP().Num())
		}
		got[wc.WRID] = true
	}
	if !got[1] || !got[2] {
		t.Errorf("receives %v completed, want 1 and 2", got)
	}
	if err := l.DestroySRQ(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("DestroySRQ with two queue pairs returned %v, want EBUSY", err)
	}
	for i := range ss {
		must.Do(t, ss[i].DestroyQP())
	}
	must.Do(t, l.DestroySRQ())
}

// Rule: a completion queue of the program's own serves several queue pairs, and goroutines that
// wait for it take each completion once.
func TestASharedCompletionQueue(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(attr())
	dev := must.Get(r.lib[0].GetDevices())(t)
	first := r.dialer(at, nil)
	for _, d := range dev {
		if own := must.Get(first.Device())(t); d.String() == own.String() && d != own {
			t.Errorf("GetDevices has another %v than the identifier", d)
		}
	}
	cq := must.Get(must.Get(first.Device())(t).CreateCQ(64))(t)
	defer func() { must.Do(t, cq.Destroy()) }()
	const conns, each = 4, 100
	var ends [conns]*ID
	for i := range ends {
		a := attr()
		a.SendCQ, a.RecvCQ = cq, cq
		c := r.dialer(at, a)
		done := make(chan error, 1)
		go func() { done <- c.Connect(r.ctx, nil) }()
		s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
		must.Do(t, s.Accept(r.ctx, nil))
		must.Do(t, <-done)
		ends[i] = c
		defer func() { must.Do(t, c.DestroyQP()) }() // before cq
		region := r.memory(s, 8, (*ID).RegWrite)
		go func() {
			for k := range uint64(each) {
				for {
					err := c.PostWrite(uint64(i)*each+k, []byte("12345678"), nil, verbs.SendSignaled, region.Addr(), region.RKey())
					if err == nil {
						break
					}
					if !errors.Is(err, ErrQueueFull) {
						t.Error(err)
						return
					}
					runtime.Gosched() // until a taker has made room
				}
			}
		}()
	}
	if err := cq.Destroy(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("Destroy of a completion queue with queue pairs returned %v, want EBUSY", err)
	}
	var mu sync.Mutex
	seen := map[uint64]int{}
	var takers sync.WaitGroup
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	for range 3 {
		takers.Go(func() {
			for {
				wc, err := cq.Next(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				if seen[wc.WRID]++; len(seen) == conns*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	takers.Wait()
	if len(seen) != conns*each {
		t.Fatalf("%d completions, want %d", len(seen), conns*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("request %d completed %d times", id, n)
		}
	}
}

// Rule: completions of requests that were accepted have room, however many: goroutines that post at the same
// time may each have found the last place.
func TestCompletionsHaveRoom(t *testing.T) {
	r := newRig(t)
	c, _ := r.connected(attr())
	cq := must.Get(must.Get(c.Device())(t).CreateCQ(1))(t)
	var want, taken uint64
	for round := range uint64(20) { // the ring begins at another place in each
		for range round {
			cq.push(&verbs.WC{WRID: want})
			want++
		}
		var wcs [8]verbs.WC
		for n := cq.take(wcs[:]); n > 0; n = cq.take(wcs[:]) {
			for _, wc := range wcs[:n] {
				if wc.WRID != taken {
					t.Fatalf("completion %d was taken, want %d", wc.WRID, taken)
				}
				taken++
			}
		}
	}
	if taken != want {
		t.Errorf("%d completions were taken, want %d", taken, want)
	}
	must.Do(t, cq.Destroy())
}

// Rule: waits whose context has ended are forgotten, and take no completion with them.
func TestWaitsThatEndedLoseNothing(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 8, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	gone, cancel := context.WithCancel(r.ctx)
	cancel()
	for range 10 * pruneFrom {
		if _, err := s.GetRecvComp(gone); !errors.Is(err, context.Canceled) {
			t.Fatalf("GetRecvComp with an ended context returned %v", err)
		}
	}
	if n := len(s.RecvCQ().waits); n > 2*pruneFrom {
		t.Errorf("%d waits are kept after their contexts ended, want at most %d", n, 2*pruneFrom)
	}
	must.Do(t, c.PostSend(2, []byte("x"), nil, verbs.SendSignaled))
	r.received(s, 1)
}

// Rule (ibv_poll_cq): Poll finds completions without a goroutine that waits.
func TestPolling(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	in := r.memory(s, 8, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	must.Do(t, c.PostSend(2, []byte("x"), nil, verbs.SendSignaled))
	var wcs [4]verbs.WC
	for _, id := range []*ID{c, s} {
		cq, want := id.SendCQ(), uint64(2)
		if id == s {
			cq, want = id.RecvCQ(), 1
		}
		n := 0
		for end := time.Now().Add(patience); n == 0 && time.Now().Before(end); {
			n = cq.Poll(wcs[:])
		}
		if n != 1 || wcs[0].WRID != want {
			t.Errorf("Poll found %d completions, the first of request %d; want request %d", n, wcs[0].WRID, want)
		}
	}
}

// Rule: posting and taking a completion allocates nothing in steady state.
func TestPostsAllocateNothing(t *testing.T) {
	r := newRig(t)
	c, s := r.connected(attr())
	region, here := r.memory(s, 8, (*ID).RegWrite), r.memory(c, 8, (*ID).RegMsgs)
	in := r.memory(s, 8, (*ID).RegMsgs)
	for what, op := range map[string]func() error{
		"WRITE": func() error {
			return c.PostWrite(1, here.Bytes(), here, verbs.SendSignaled, region.Addr(), region.RKey())
		},
		"SEND": func() error {
			if err := s.PostRecv(1, in.Bytes(), in); err != nil {
				return err
			}
			if err := c.PostSend(1, here.Bytes(), here, verbs.SendSignaled); err != nil {
				return err
			}
			_, err := s.GetRecvComp(r.ctx)
			return err
		},
		"inline SEND": func() error {
			if err := s.PostRecv(1, in.Bytes(), in); err != nil {
				return err
			}
			if err := c.PostSend(1, here.Bytes(), nil, verbs.SendSignaled); err != nil {
				return err
			}
			_, err := s.GetRecvComp(r.ctx)
			return err
		},
	} {
		run := func() {
			must.Do(t, op())
			r.sent(c, 1)
		}
		run()
		if n := testing.AllocsPerRun(200, run); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations for each request, want 0", what, n)
		}
	}
}
