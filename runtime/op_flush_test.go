package runtime

import (
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a program starts a WRITE of a log entry, a FLUSH, an ATOMIC_WRITE of the number of entries
// and a second FLUSH, then the peer's memory has the entry and the number when the second FLUSH has
// completed.
func TestWriteFlushPublish(t *testing.T) { onBeds(t, writeFlushPublish) }

func writeFlushPublish(t *testing.T, d bed) {
	a, b := d.connected(t, Config{})
	ctx := testContext(t)
	r := must.Get(b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushGlobal))(t)
	all := must.Get(r.Remote(0, 4096))(t)
	for n := range uint64(100) {
		entry := must.Get(all.At(64+n*8, 8))(t)
		src := bufferOf(t, a.rt, binary.NativeEndian.AppendUint64(nil, n*n))
		for _, step := range []func() (Future, error){
			func() (Future, error) { return a.Write(ctx, src.Slice(), entry) },
			func() (Future, error) { return a.Start(ctx, new(FlushOp(entry, verbs.FlushGlobal))) },
			func() (Future, error) { return a.Start(ctx, new(AtomicWriteOp(all, n+1))) },
		} {
			f := must.Get(step())(t)
			defer f.Discard()
		}
		f, err := a.Start(ctx, new(FlushOp(all, verbs.FlushGlobal)))
		done(t, f, err)
		if tail := binary.NativeEndian.Uint64(r.Bytes()); tail != n+1 {
			t.Fatalf("after entry %d the number of entries is %d, want %d", n, tail, n+1)
		}
		if v := binary.NativeEndian.Uint64(r.Bytes()[64+n*8:]); v != n*n {
			t.Fatalf("entry %d is %d, want %d", n, v, n*n)
		}
	}
}

// Rule: if the descriptor (a Remote) does not permit a FLUSH or an ATOMIC_WRITE, or the operation is
// invalid, Start returns an error and sends nothing to the peer.
func TestFlushMistakes(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r, err := b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessFlushGlobal)
	if err != nil {
		t.Fatal(err)
	}
	at := must.Get(r.Remote(0, 64))(t)
	_, err = a.Start(ctx, new(FlushOp(at, verbs.FlushPersistent)))
	mistake(t, "a persistent FLUSH of memory without FLUSH_PERSISTENT", err, ErrPermission, "FLUSH_PERSISTENT")
	_, err = a.Start(ctx, new(AtomicWriteOp(at, 1)))
	mistake(t, "an ATOMIC_WRITE to memory without REMOTE_WRITE", err, ErrPermission, "REMOTE_WRITE")
	_, err = a.Start(ctx, new(FlushOp(at, 0)))
	mistake(t, "a FLUSH without a placement type", err, reactor.ErrRequest)
	odd := must.Get(at.At(4, 8))(t)
	odd.Access |= verbs.AccessRemoteWrite
	_, err = a.Start(ctx, new(AtomicWriteOp(odd, 1)))
	mistake(t, "an ATOMIC_WRITE to an address that is no multiple of 8", err, reactor.ErrRequest, "multiple of 8")
}
