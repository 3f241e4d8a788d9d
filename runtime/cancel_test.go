package runtime

import (
	"bytes"
	"errors"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: when Cancel returns every operation of the connection has completed, once, and
// all memory is the caller's again, also that of receives; what has arrived can still be
// received; Close is still needed and works.
func TestCancelBringsEverythingHome(t *testing.T) { onBeds(t, cancelBringsEverythingHome) }

func cancelBringsEverythingHome(t *testing.T, d bed) {
	for _, raw := range []bool{false, true} {
		a, b := d.connected(t, Config{Conn: Options{Raw: raw, RecvCredits: 16, SendDepth: 16}})
		ctx := testContext(t)
		if !raw {
			f, err := b.SendBytes(ctx, []byte("before"))
			done(t, f, err)
			for !arrivedAt(t, a) {
				goruntime.Gosched()
			}
		}
		r, err := a.rt.NewRegion(64, verbs.AccessLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		local, err := r.Slice(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		far, err := b.rt.NewRegion(64, allAccess)
		if err != nil {
			t.Fatal(err)
		}
		remote, err := far.Remote(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		var under []Future
		for i := range 16 {
			var f Future
			switch {
			case raw && i%2 == 0:
				f, err = a.PostRecv(local)
			case i%3 == 0:
				f, err = a.Read(ctx, local, remote)
			default:
				f, err = a.Batch().Start(ctx, new(WriteOp(local, remote))) // stands in the queue
			}
			if err != nil {
				t.Fatal(err)
			}
			under = append(under, f)
		}
		from := time.Now()
		for range 2 {
			if err := a.Cancel(ctx); err != nil {
				t.Fatalf("raw %v: %v", raw, err)
			}
		}
		if took := time.Since(from); took > flushBound {
			t.Errorf("cancelled in %v: the device flushed nothing", took)
		}
		for i, f := range under {
			_, err, ok := f.Poll()
			if !ok || err != nil && !errors.Is(err, ErrCancelled) {
				t.Errorf("raw %v: operation %d settled %v with %v, want %v", raw, i, ok, err, ErrCancelled)
			}
			if _, again, _ := f.Poll(); !errors.Is(again, futures.ErrConsumed) {
				t.Errorf("raw %v: operation %d was settled twice: %v", raw, i, again)
			}
		}
		if err := r.Close(); err != nil {
			t.Errorf("raw %v: closing the region: %v", raw, err)
		}
		if err := a.Err(); !errors.Is(err, ErrCancelled) {
			t.Errorf("raw %v: the connection's cause: %v, want %v", raw, err, ErrCancelled)
		}
		if _, err := a.Do(ctx, new(WriteOp(Slice{}, remote))); !errors.Is(err, ErrCancelled) {
			t.Errorf("raw %v: writing afterwards: %v, want %v", raw, err, ErrCancelled)
		}
		if !raw {
			m, err := a.RecvWait(ctx)
			if err != nil || string(m.Data) != "before" {
				t.Errorf("receiving what had arrived: %q, %v", m.Data, err)
			} else if err := m.Release(); err != nil {
				t.Error(err)
			}
			if _, err := a.RecvWait(ctx); !errors.Is(err, ErrCancelled) {
				t.Errorf("receiving more: %v, want %v", err, ErrCancelled)
			}
		}
		select {
		case <-b.Done():
		case <-ctx.Done():
			t.Error("the peer was not told")
		}
		for _, c := range []*Conn{a, b} {
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
			if err := c.Cancel(ctx); err != nil {
				t.Errorf("cancelling a closed connection: %v", err)
			}
		}
	}
}

// arrivedAt tells whether a message waits at c.
func arrivedAt(t *testing.T, c *Conn) (yes bool) {
	if err := c.sh.r.Do(testContext(t), func() { yes = len(c.arrived) > 0 }); err != nil {
		t.Fatal(err)
	}
	return yes
}

// Rule: a receive that was submitted and not posted when Cancel came is home, too, when
// it returns. (Idle looked at posted receives only, and the region had a user.)
func TestCancelFindsReceivesThatAreNotPosted(t *testing.T) {
	a, _ := connected(t, Config{Conn: Options{Raw: true}})
	r, err := a.rt.NewRegion(64, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	local, err := r.Slice(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	var f Future
	home := make(chan struct{})
	if derr := a.sh.r.Do(testContext(t), func() { // the turn is ours: nothing is posted
		if f, err = a.PostRecv(local); err != nil {
			return
		}
		a.setCause(ErrCancelled)
		a.flushAll(home)
		if isClosed(home) {
			t.Errorf("everything is home, with %d operations in flight on the region", local.lease.word.Load()&leaseCountMask)
		}
	}); derr != nil || err != nil {
		t.Fatal(derr, err)
	}
	<-home
	if _, err, ok := f.Poll(); !ok || !errors.Is(err, ErrCancelled) {
		t.Errorf("the receive: %v (settled %v), want %v", err, ok, ErrCancelled)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: a READ that was under way when it was cancelled writes nothing afterwards,
// though the peer's answer comes: the memory is another's by then.
func TestALateAnswerWritesNothing(t *testing.T) {
	for _, when := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		p := newLostPeer(t, Options{})
		const late = 20 * time.Millisecond
		p.w.fab.SetLink(p.w.nodes[1].gid, p.w.nodes[0].gid, fabric.Link{Delay: late})
		p.start("read")
		p.pass(when)
		home := p.a.cancel()
		for n := 0; !isClosed(home); n++ {
			if n == 1000 {
				t.Fatal("cancelling takes longer than a second")
			}
			p.pass(time.Millisecond)
		}
		mine := bytes.Repeat([]byte{0x11}, p.local.Len())
		own := p.local.Bytes() // zeros are what the answer would bring
		copy(own, mine)
		p.pass(10 * late)
		if !bytes.Equal(own, mine) {
			t.Errorf("cancelled %v after the READ was started: the answer was written", when)
		}
		if o := p.ops[0]; o.ended == 0 || !errors.Is(o.err, ErrCancelled) {
			t.Errorf("the READ ended at %v with %v, want %v", o.ended, o.err, ErrCancelled)
		}
		if n := p.local.lease.word.Load() & leaseCountMask; n != 0 {
			t.Errorf("%d operations have the memory", n)
		}
	}
}
