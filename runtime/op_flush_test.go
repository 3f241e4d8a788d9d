package runtime

import (
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a log entry is written, flushed and published by one word; every step is
// where others see it when the next one is.
func TestWriteFlushPublish(t *testing.T) { onBeds(t, writeFlushPublish) }

func writeFlushPublish(t *testing.T, d bed) {
	a, b := d.connected(t, Config{})
	ctx := testContext(t)
	r, err := b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushGlobal)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Remote(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(100) {
		entry, err := all.At(64+n*8, 8)
		if err != nil {
			t.Fatal(err)
		}
		src := bufferOf(t, a.rt, binary.NativeEndian.AppendUint64(nil, n*n))
		for _, step := range []func() (Future, error){
			func() (Future, error) { return a.Write(ctx, src.Slice(), entry) },
			func() (Future, error) { return a.Start(ctx, new(FlushOp(entry, verbs.FlushGlobal))) },
			func() (Future, error) { return a.Start(ctx, new(AtomicWriteOp(all, n+1))) },
		} {
			f, err := step()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Discard()
		}
		f, err := a.Start(ctx, new(FlushOp(all, verbs.FlushGlobal)))
		done(t, f, err)
		if tail := binary.NativeEndian.Uint64(r.Bytes()); tail != n+1 {
			t.Fatalf("entry %d: the tail is %d", n, tail)
		}
		if v := binary.NativeEndian.Uint64(r.Bytes()[64+n*8:]); v != n*n {
			t.Fatalf("entry %d is %d", n, v)
		}
	}
}

// Rule: what the descriptor does not allow is refused here.
func TestFlushMistakes(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r, err := b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessFlushGlobal)
	if err != nil {
		t.Fatal(err)
	}
	at, err := r.Remote(0, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Start(ctx, new(FlushOp(at, verbs.FlushPersistent)))
	mistake(t, "persistent flush of plain memory", err, ErrPermission, "FLUSH_PERSISTENT")
	_, err = a.Start(ctx, new(AtomicWriteOp(at, 1)))
	mistake(t, "writing what is for reading", err, ErrPermission, "REMOTE_WRITE")
	_, err = a.Start(ctx, new(FlushOp(at, 0)))
	mistake(t, "a flush of no kind", err, reactor.ErrRequest)
	odd, err := at.At(4, 8)
	if err != nil {
		t.Fatal(err)
	}
	odd.Access |= verbs.AccessRemoteWrite
	_, err = a.Start(ctx, new(AtomicWriteOp(odd, 1)))
	mistake(t, "a word at an address that is none", err, reactor.ErrRequest, "multiple of 8")
}
