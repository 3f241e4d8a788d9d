package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: Do executes an operation as Start and Await do, and returns the result of the operation.
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
			t.Fatalf("write: %+v, %v, %q", r, err, region.Bytes()[:5])
		}
		copy(region.Bytes(), "again")
		if r, err := a.Do(ctx, new(ReadOp(buf.Slice(), remote))); err != nil || r.Bytes != 64 || string(buf.Bytes()[:5]) != "again" {
			t.Fatalf("read: %+v, %v, %q", r, err, buf.Bytes()[:5])
		}
		if _, err := a.Do(ctx, new(SendOp(buf.Slice()))); err != nil {
			t.Fatal(err)
		}
		m, err := b.RecvWait(ctx)
		if err != nil || string(m.Data[:5]) != "again" {
			t.Fatalf("message: %q, %v", m.Data, err)
		}
		release(t, m)
		_, err = a.Do(ctx, new(WriteOp(buf.Slice(), Remote{Length: 8})))
		mistake(t, "no room", err, ErrRemoteRange)
	}
}

// Rule: if the context of Do ends first, the operation continues. A buffer that the caller releases
// meanwhile returns to its pool when the operation ends.
func TestSynchronousFormGivenUpStillEnds(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	region := must.Get(b.rt.NewRegion(64, allAccess))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 64))(t)
	buf := must.Get(a.rt.Alloc(64))(t)
	link.SetAll(fabric.Link{Down: true})
	out := a.rt.MemoryStats().Buffers
	if _, err := a.Do(endedContext(), new(WriteOp(buf.Slice(), remote))); !errors.Is(err, context.Canceled) {
		t.Fatalf("into a cut link: %v, want Canceled", err)
	}
	if err := buf.Release(); err != nil {
		t.Fatal(err)
	}
	if n := a.rt.MemoryStats().Buffers; n != out {
		t.Errorf("%d buffers are out while the device has one more, want %d", n, out)
	}
	link.SetAll(fabric.Link{})
	for ctx := testContext(t); a.rt.MemoryStats().Buffers != out-1; { // the operation ends although no goroutine awaits it
		if ctx.Err() != nil {
			t.Fatal("the buffer of an operation that was given up did not come back")
		}
	}
}
