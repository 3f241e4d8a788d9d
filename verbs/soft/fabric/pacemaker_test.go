package fabric

import (
	"runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

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
		return len(f.pace.wakeup) == 0
	}
	if !asleep() {
		t.Fatalf("the pacemaker sleeps until %d, want the deadline %d", f.pace.wakeAt.Load(), time.Hour)
	}
	for range 100 {
		e.inTurn(func() { e.deadline += time.Second })
		if len(f.pace.wakeup) != 0 || f.pace.wakeAt.Load() != int64(time.Hour) {
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
		f.pace.wakeup <- struct{}{}
		for limit := time.Now().Add(patience); len(f.pace.wakeup) != 0 || f.pace.wakeAt.Load() != never; runtime.Gosched() {
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
	for range 3 { // it starts again each time
		before := runtime.NumGoroutine()
		a, b := &toy{deadline: time.Hour}, &toy{}
		pa := must.Get(f.Attach(gid(0), "a", a))(t)
		a.port = pa
		pb := must.Get(f.Attach(gid(1), "b", b))(t)
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
		// The goroutine closes done last; the scheduler may still count it.
		for limit := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(limit) {
				t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			}
		}
		if len(f.delay.waiting) != 0 || !f.delay.incoming.empty() {
			t.Error("delayed packets outlive the last port")
		}
	}
}
