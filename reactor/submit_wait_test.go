package reactor_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// transfer returns a WRITE of 8 bytes from e's memory to peer's memory. The offset is the same in both.
func (e *end) transfer(peer *end, off int) reactor.Transfer {
	addr, key := peer.remote(off)
	_, sge := e.bytes(off, 8)
	return reactor.Transfer{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key, Local: sge}
}

// Rule: before TransferWait posts its own request, it posts the earlier unposted requests of the
// goroutine.
func TestALoneTransferKeepsItsPlace(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	write, read := a.transfer(b, 0), a.transfer(b, 0)
	read.Opcode = verbs.WRRDMARead
	back, sge := a.bytes(64, 8)
	read.Local = sge
	mine, _ := a.bytes(0, 8)
	rounds := 500
	if onDevice() {
		rounds = 20
	}
	for i := range rounds {
		mine[0], back[0] = byte(i), byte(i+1)
		f := must.Get(a.q.Transfer(ctx, &write, reactor.NoWakeup))(t)
		if _, err := a.q.TransferWait(ctx, &read); err != nil {
			t.Fatalf("TransferWait of the READ returned %v, want nil", err)
		}
		if back[0] != byte(i) {
			t.Fatalf("the READ returned %d, want %d, the value of the WRITE before it", back[0], byte(i))
		}
		await(t, f, nil)
	}
}

// Rule: if some goroutines use TransferWait and others use Transfer, each goroutine gets the
// outcome of its own request, one time, and no goroutine waits forever.
func TestLoneTransfersAmongOthers(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4}) // fewer slots than goroutines
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	rounds := 300
	if onDevice() {
		rounds = 10
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			one := a.transfer(b, 64*g)
			mine, _ := a.bytes(64*g, 8)
			there, _ := b.bytes(64*g, 8)
			for i := range rounds {
				mine[0] = byte(i)
				if one.Tag = uint64(i); g%2 == 0 || i%5 == 0 {
					if c, err := a.q.TransferWait(ctx, &one); err != nil || c.Tag != uint64(i) || c.Bytes != 8 {
						t.Errorf("goroutine %d: TransferWait returned %+v, %v; want tag %d, 8 bytes and no error", g, c, err, i)
						return
					}
				} else if f, err := a.q.Transfer(ctx, &one, reactor.Block); err != nil {
					t.Errorf("goroutine %d: Transfer %d returned %v, want nil", g, i, err)
					return
				} else if c, err := f.Await(ctx); err != nil || c.Tag != uint64(i) {
					t.Errorf("goroutine %d: Transfer ended with %+v, %v; want tag %d and no error", g, c, err, i)
					return
				}
				if there[0] != byte(i) {
					t.Errorf("goroutine %d: its WRITE %d has ended, and the peer's memory has %d, want %d", g, i, there[0], byte(i))
					return
				}
			}
		})
	}
	wg.Wait()
}

// Rule: TransferWait ends the lease of its request one time, whether the request completes, is refused
// by TransferWait, or is refused by the device. This also holds if the context is nil.
func TestALoneTransfersLeaseEndsOnce(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	expect := func(what string, got, want error, l *countingLease) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: TransferWait returned %v, want %v", what, got, want)
		}
		if n := l.ended.Load(); n != 1 {
			t.Errorf("%s: the lease ended %d times, want once", what, n)
		}
	}
	one := a.transfer(b, 0)
	run := func(what string, ctx context.Context, want error) {
		t.Helper()
		var l countingLease
		one.Lease = &l
		_, err := a.q.TransferWait(ctx, &one)
		expect(what, err, want, &l)
	}
	run("a request that completes", ctx, nil)
	run("a nil context", nil, reactor.ErrNilContext)
	f.cutAt.Store(0)
	run("a request that the device refuses", ctx, syscall.ENOMEM)
	one.Opcode = verbs.WRSend
	run("a request that is neither a WRITE nor a READ", ctx, reactor.ErrRequest)
	one.Opcode = verbs.WRRDMAWrite
	a.q.Fail(errors.New("the owner failed the queue"))
	run("a failed queue", ctx, reactor.ErrQueueFailed)
}

// Rule: if the device refuses an earlier request, the earlier request ends with the device's error, and
// TransferWait still returns the outcome of its own request.
func TestALoneTransferIsNotTakenForWhatFailed(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	first, second := a.transfer(b, 0), a.transfer(b, 8)
	for range 20 {
		// cutAt must be set before the first request is submitted, because a running loop may post the
		// request at once.
		f.cutAt.Store(0)
		before, err := a.q.Transfer(ctx, &first, reactor.NoWakeup)
		must.Do(t, err)
		_, err = a.q.TransferWait(ctx, &second)
		_, ferr := before.Await(ctx)
		// If another goroutine held the turn, both requests are in one list and fail together.
		if err != nil && !errors.Is(err, syscall.ENOMEM) || !errors.Is(ferr, syscall.ENOMEM) {
			t.Fatalf("the refused request ended with %v, want ENOMEM; TransferWait returned %v, want nil, or ENOMEM if both were in one list", ferr, err)
		}
	}
}

// Rule: TransferWait does not arm the completion queue of sends in the pass that posts its request.
// If the request completes in that pass, it needs no event.
func TestALoneTransferArmsNothing(t *testing.T) {
	onlySoft(t, "a device completes an operation later than the pass that posts it")
	var arms uint64
	for range 10 { // tries again if the loop has posted the request in a pass that arms
		a, b := pair(t, reactor.Config{Recheck: -1}, reactor.QueueConfig{})
		one := a.transfer(b, 0)
		must.Get(a.q.TransferWait(bounded(t), &one))(t)
		arms = a.r.Stats().Arms
		a.close(t)
		b.close(t)
		if arms <= 1 { // the completion queue of receives may be armed
			return
		}
	}
	t.Errorf("in the last of 10 rounds %d completion queues were armed, want at most 1", arms)
}
