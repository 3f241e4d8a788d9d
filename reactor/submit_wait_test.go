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

// The method transfer returns a WRITE of 8 bytes, from offset off of e's memory to the same offset
// of peer's memory.
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
			t.Fatal(err)
		}
		if back[0] != byte(i) {
			t.Fatalf("the READ after the WRITE of %d found %d", i, back[0])
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
						t.Errorf("transfer %d of %d: %+v, %v", i, g, c, err)
						return
					}
				} else if f, err := a.q.Transfer(ctx, &one, reactor.Block); err != nil {
					t.Error(err)
					return
				} else if c, err := f.Await(ctx); err != nil || c.Tag != uint64(i) {
					t.Errorf("transfer %d of %d: %+v, %v", i, g, c, err)
					return
				}
				if there[0] != byte(i) {
					t.Errorf("transfer %d of %d has ended, and the peer has %d", i, g, there[0])
					return
				}
			}
		})
	}
	wg.Wait()
}

// Rule: the lease of a request of TransferWait ends one time, whether the request is refused,
// cannot be posted, or completes. This also holds without a context.
func TestALoneTransfersLeaseEndsOnce(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	expect := func(what string, got, want error, l *countingLease) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
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
	run("done", ctx, nil)
	run("no context", nil, reactor.ErrNilContext)
	f.cutAt.Store(0)
	run("not posted", ctx, syscall.ENOMEM)
	one.Opcode = verbs.WRSend
	run("no transfer", ctx, reactor.ErrRequest)
	one.Opcode = verbs.WRRDMAWrite
	a.q.Fail(errors.New("the owner's"))
	run("the queue has failed", ctx, reactor.ErrQueueFailed)
}

// Rule: if the device refuses an earlier request, that request ends with the error. TransferWait
// returns the outcome of its own request.
func TestALoneTransferIsNotTakenForWhatFailed(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{})
	defer b.close(t)
	defer a.close(t)
	ctx := bounded(t)
	first, second := a.transfer(b, 0), a.transfer(b, 8)
	for range 20 {
		// Set cutAt before the first request is submitted: if the loop is running, it may post the
		// request at once.
		f.cutAt.Store(0)
		before, err := a.q.Transfer(ctx, &first, reactor.NoWakeup)
		must.Do(t, err)
		_, err = a.q.TransferWait(ctx, &second)
		_, ferr := before.Await(ctx)
		// If another goroutine held the turn, both requests are in one list and fail together.
		if err != nil && !errors.Is(err, syscall.ENOMEM) || !errors.Is(ferr, syscall.ENOMEM) {
			t.Fatalf("the one that was cut: %v; the one behind it: %v", ferr, err)
		}
	}
}

// Rule: TransferWait does not arm the completion queue of sends in the pass that posts its request.
// If the request completes in that pass, it needs no event.
func TestALoneTransferArmsNothing(t *testing.T) {
	onlySoft(t, "a device completes later than the pass that posts")
	var arms uint64
	for range 10 { // the loop may have posted the request in a pass that arms
		a, b := pair(t, reactor.Config{Recheck: -1}, reactor.QueueConfig{})
		one := a.transfer(b, 0)
		must.Get(a.q.TransferWait(bounded(t), &one))(t)
		arms = a.r.Stats().Arms
		a.close(t)
		b.close(t)
		if arms <= 1 { // of the receives
			return
		}
	}
	t.Errorf("got %d arms in each of 10 rounds, want at most 1", arms)
}
