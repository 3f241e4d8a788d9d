package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: Do executes an operation as Start does, waits as Await does, and returns the operation's
// result.
func TestSynchronousForms(t *testing.T) {
	for _, parked := range []bool{false, true} {
		a, b := connected(t, Config{NoCallerDriving: parked})
		ctx := testContext(t)
		region := must.Get(b.rt.NewRegion(4096, allAccess))(t)
		defer region.Close()
		remote := must.Get(region.Remote(0, 64))(t)
		buf := must.Get(a.rt.Alloc(64))(t)
		defer buf.Release()
		copy(buf.Bytes(), "there")
		if r, err := a.Do(ctx, new(WriteOp(buf.Slice(), remote))); err != nil || r.Bytes != 64 || string(region.Bytes()[:5]) != "there" {
			t.Fatalf("the WRITE returned %+v, %v and left %q in the region; want 64 bytes, no error and %q", r, err, region.Bytes()[:5], "there")
		}
		copy(region.Bytes(), "again")
		if r, err := a.Do(ctx, new(ReadOp(buf.Slice(), remote))); err != nil || r.Bytes != 64 || string(buf.Bytes()[:5]) != "again" {
			t.Fatalf("the READ returned %+v, %v and left %q in the buffer; want 64 bytes, no error and %q", r, err, buf.Bytes()[:5], "again")
		}
		if _, err := a.Do(ctx, new(SendOp(buf.Slice()))); err != nil {
			t.Fatal(err)
		}
		m, err := b.RecvWait(ctx)
		if err != nil || string(m.Data[:5]) != "again" {
			t.Fatalf("received %q, error %v; want a message that begins with %q", m.Data, err, "again")
		}
		release(t, m)
		_, err = a.Do(ctx, new(WriteOp(buf.Slice(), Remote{Length: 8})))
		mistake(t, "a WRITE of 64 bytes to 8 bytes", err, ErrRemoteRange)
	}
}

// Rule: if the context of Do ends before the operation, the operation continues. If the caller then
// releases the operation's buffer, the buffer returns to its pool when the operation ends.
func TestSynchronousFormGivenUpStillEnds(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	region := must.Get(b.rt.NewRegion(64, allAccess))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 64))(t)
	buf := must.Get(a.rt.Alloc(64))(t)
	link.SetAll(fabric.Link{Down: true})
	leased := a.rt.MemoryStats().Buffers // includes buf
	soon, cancel := context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if _, err := a.Do(soon, new(WriteOp(buf.Slice(), remote))); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Do over a cut link returned %v, want %v", err, context.DeadlineExceeded)
	}
	if err := buf.Release(); err != nil {
		t.Fatal(err)
	}
	if n := a.rt.MemoryStats().Buffers; n != leased {
		t.Errorf("%d buffers are leased after Release and before the end of the WRITE, want %d", n, leased)
	}
	link.SetAll(fabric.Link{})
	for ctx := testContext(t); a.rt.MemoryStats().Buffers != leased-1; { // the WRITE ends although no goroutine awaits it
		if ctx.Err() != nil {
			t.Fatal("the buffer did not return to its pool after the link was restored")
		}
	}
}
