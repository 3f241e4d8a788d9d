//go:build linux && cgo && !portable

package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a runtime uses libibverbs instead of the software RNIC, connections, messages, WRITEs, READs
// and atomics work in the same way. They work whether waiting goroutines run the reactor or only the
// loop (the reactor's own goroutine) runs it. (In this test the null device takes the
// place of libibverbs.)
func TestEchoOverLibibverbs(t *testing.T) {
	for name, cfg := range map[string]Config{
		"default": {}, "loop only": {NoCallerDriving: true, Spin: -1}, "two reactors": {Reactors: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := nullBed.connected(t, cfg)
			echoes(t, a, b)
			oneSidedWork(t, a, b)
		})
	}
}

// echoes sends messages of many sizes from a to b, and b sends each message back.
func echoes(t *testing.T, a, b *Conn) {
	const n = 200
	ctx := testContext(t)
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			for i := range n {
				m, err := b.RecvWait(ctx)
				if err != nil {
					return fmt.Errorf("b receives message %d: %w", i, err)
				}
				_, err = b.SendBytes(ctx, m.Data)
				if err = errors.Join(err, m.Release()); err != nil {
					return fmt.Errorf("b sends message %d back: %w", i, err)
				}
			}
			return nil
		}()
	}()
	for i := range n {
		want := bytes.Repeat([]byte{byte(i + 1)}, i*7)
		if _, err := a.SendBytes(ctx, want); err != nil {
			t.Fatalf("a sends message %d: %v", i, err)
		}
		m := must.Get(a.RecvWait(ctx))(t)
		if !bytes.Equal(m.Data, want) {
			t.Fatalf("message %d came back with %d bytes, want the %d bytes that were sent", i, len(m.Data), len(want))
		}
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

// oneSidedWork writes into a region of b, adds to the first word of the region, and reads the
// region back.
func oneSidedWork(t *testing.T, a, b *Conn) {
	ctx := testContext(t)
	region := must.Get(b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, region.Len()))(t)
	out := must.Get(a.rt.Alloc(4096))(t)
	defer out.Release()
	in := must.Get(a.rt.Alloc(4096))(t)
	defer in.Release()
	for i := range out.Bytes() {
		out.Bytes()[i] = byte(i % 251)
	}
	clear(out.Bytes()[:8])
	f, err := a.Write(ctx, out.Slice(), remote)
	done(t, f, err)
	f = must.Get(a.Start(ctx, new(FetchAndAddOp(remote, 5))))(t)
	if r := done(t, f, err); r.Value != 0 {
		t.Errorf("the fetch and add returned %d, want 0", r.Value)
	}
	f, err = a.Read(ctx, in.Slice(), remote)
	done(t, f, err)
	// The atomic stores 5 in the host's byte order, so either the first or the last byte of the
	// word is 5.
	if !bytes.Equal(in.Bytes()[8:], out.Bytes()[8:]) || in.Bytes()[0]+in.Bytes()[7] != 5 {
		t.Errorf("the READ returned the first word % x, want 5; comparing the other bytes with the written bytes returned %t, want true",
			in.Bytes()[:8], bytes.Equal(in.Bytes()[8:], out.Bytes()[8:]))
	}
}
