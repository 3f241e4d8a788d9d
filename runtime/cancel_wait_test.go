package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: a wait that its context ends gives the goroutine back at once, in every form of
// waiting, and the lease stays until the operation ends: of an operation that a silent
// peer does not answer, the memory cannot be taken from the device.
func TestAnEndedWaitKeepsTheLease(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p, Conn: Options{SendDepth: 4, RecvCredits: 4}})
	far, err := b.rt.NewRegion(64, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := far.Remote(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	link.SetAll(fabric.Link{Down: true})
	defer link.SetAll(fabric.Link{})
	forms := map[string]func(ctx context.Context, local Slice) error{
		"Do of a WRITE": func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(WriteOp(l, remote))); return err },
		"Do of a READ":  func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(ReadOp(l, remote))); return err },
		"Do of a SEND":  func(ctx context.Context, l Slice) error { _, err := a.Do(ctx, new(SendOp(l))); return err },
		"Await": func(ctx context.Context, l Slice) error {
			f, err := a.Write(testContext(t), l, remote)
			if err == nil {
				if _, err = f.Await(ctx); f.Valid() {
					f.Discard()
				}
			}
			return err
		},
	}
	var regions []*Region
	for name, wait := range forms {
		r, err := a.rt.NewRegion(64, verbs.AccessLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
		local, err := r.Slice(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		if err := wait(endedContext(), local); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", name, err, context.Canceled)
		}
		if took := time.Since(from); took > time.Second { // the device gives the peer up after 0.54 s at the earliest
			t.Errorf("%s: gave its goroutine back after %v", name, took)
		}
		if err := r.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: closing the region of an operation under way: %v, want %v", name, err, verbs.ErrBusy)
		}
	}
	// The queue is full now: the wait for room ends, too, and leaves no lease.
	buf := bufferOf(t, a.rt, make([]byte, 64))
	before := buf.s.lease.word.Load()
	if _, err := a.Write(endedContext(), buf.Slice(), remote); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for room: %v, want %v", err, context.Canceled)
	}
	if after := buf.s.lease.word.Load(); after != before {
		t.Errorf("what was not submitted has a lease: word %x, before %x", after, before)
	}
	if err := a.Cancel(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range regions {
		if err := r.Close(); err != nil {
			t.Errorf("closing a region after Cancel: %v", err)
		}
	}
}
