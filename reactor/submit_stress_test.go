package reactor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	pressTime    = 200 * time.Millisecond // how long the test runs on each bed, without VERBENA_STRESS_TIME
	pressWorkers = 12
	pressDepth   = 2 // SendDepth; much smaller than pressWorkers, so that most workers wait
	// If no worker does an operation for the time pressHang, the test reports a lost wake-up.
	// pressHang is long because a busy machine may suspend a process for seconds.
	pressHang = 20 * time.Second
)

// Rule: no submitter waits for ever while a send slot is free, under any mix of waiting, giving up,
// submitting and completing. At most SendDepth sends are outstanding. In the end every slot is
// free. `make stress` runs this test for a minute on each bed.
//
// The test detects lost wake-ups in package ring. If Slots.PutN did not call serve, or line.wait did
// not call handOut, all workers would soon wait although a slot is free. The order of the waiters is
// tested by TestSlotsServeWaitersInOrder in internal/ring.
func TestStressBackPressure(t *testing.T) { onBeds(t, stressBackPressure) }

func stressBackPressure(t *testing.T, d bed) {
	seed := uint64(number(t, "VERBENA_SEED", int(time.Now().UnixNano()&(1<<40-1))))
	t.Logf("VERBENA_SEED=%d", seed)
	length := pressTime
	if s := os.Getenv("VERBENA_STRESS_TIME"); s != "" {
		length = must.Get(time.ParseDuration(s))(t)
	}
	a, b := d.pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: pressDepth}, nil)
	var ended, started, moved, gaveUp atomic.Int64
	var over atomic.Bool
	sink := called(func(_ reactor.Completion, err error) {
		try(t, err)
		ended.Add(1)
	})
	gone, cut := context.WithCancel(context.Background())
	defer cut()
	var workers sync.WaitGroup
	for i := range pressWorkers {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		workers.Go(func() {
			for !over.Load() {
				err := a.press(gone, b, rnd, sink, &started)
				switch {
				case err == nil:
					moved.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					gaveUp.Add(1)
				case gone.Err() == nil:
					t.Errorf("worker %d: an operation ended with %v, want success or DeadlineExceeded", i, err)
					return
				}
			}
		})
	}
	back := make(chan struct{})
	go func() { workers.Wait(); close(back) }()
	end, look := time.After(length), time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for last, since := int64(-1), time.Now(); ; {
		select {
		case <-end:
			over.Store(true)
			continue
		case <-look.C:
		case <-back:
		}
		if now := moved.Load(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) > pressHang {
			t.Errorf("after %d operations no operation succeeded for %v: a wake-up was lost", now, pressHang)
			over.Store(true)
			cut()
		}
		if over.Load() && (t.Failed() || closedNow(back)) {
			break
		}
	}
	<-back
	st := a.r.Stats()
	t.Logf("%d operations succeeded, %d ended because of their deadline", moved.Load(), gaveUp.Load())
	if st.MaxOutstanding > pressDepth {
		t.Errorf("%d sends were outstanding at the same time, want at most SendDepth, which is %d", st.MaxOutstanding, pressDepth)
	}
	if !t.Failed() && (gaveUp.Load() == 0 || moved.Load() == 0) {
		t.Errorf("%d operations succeeded and %d ended because of their deadline, want some of both", moved.Load(), gaveUp.Load())
	}
	idle := make(chan struct{}) // wait for the last operations; otherwise a.close would flush them
	a.do(t, func() { a.q.SendsIdle(func() { close(idle) }) })
	comes(t, "the end of the last operations", idle)
	a.close(t) // if a slot was lost, the queue's memory stays, and a.close fails with verbs.ErrBusy
	b.close(t)
	if e, s := ended.Load(), started.Load(); e != s && !t.Failed() {
		t.Errorf("%d operations with a sink ended, want all %d", e, s)
	}
}

// press does one operation or one batch, by a randomly chosen method. One call in three has a deadline of
// less than 60 µs. press increments *started for each submitted operation that has a sink.
func (e *end) press(gone context.Context, to *end, rnd *rand.Rand, sink reactor.Sink, started *atomic.Int64) error {
	ctx := gone
	if rnd.IntN(3) == 0 {
		short, cancel := context.WithTimeout(gone, time.Duration(rnd.IntN(60))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	s, p := e.write(to)
	tr := &reactor.Transfer{Opcode: verbs.WRRDMAWrite, Remote: s.Remote, RKey: s.RKey, Local: p.SGEs[0]}
	switch rnd.IntN(4) {
	case 0:
		s.Sink = sink
		_, err := e.q.Submit(ctx, s, &p, reactor.Block)
		if err == nil {
			started.Add(1)
		}
		return err
	case 1:
		_, err := e.q.TransferWait(ctx, tr)
		return err
	case 2:
		tr.Sink = sink
		var run reactor.BatchSubmitter
		run.Reset(e.q)
		n := rnd.IntN(2 * pressDepth)
		for k := range n + 1 {
			if _, err := run.Transfer(ctx, tr, n-k, reactor.NoWakeup); err != nil {
				run.Submit(reactor.Block)
				return err
			}
			started.Add(1)
		}
		run.Submit(reactor.Block)
		return nil
	}
	f, err := e.q.Submit(ctx, s, &p, reactor.NoWakeup)
	if err == nil {
		if _, err = f.Await(ctx); err != nil {
			f.Discard()
		}
	}
	return err
}

func closedNow(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
