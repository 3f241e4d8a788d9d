package runtime

import (
	"encoding/binary"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// plainBed has devices that execute neither FLUSH nor ATOMIC_WRITE.
var plainBed = bed{name: "without extensions", open: func(t testing.TB, cfg Config, dev int) *Runtime {
	at := must.Get(open.Choose(nil, [...]place{first, second}[dev].name))(t)
	cfg.Provider, cfg.Device = altered.Provider{Provider: at.Provider, Change: altered.WithoutExtensions}, at.Device
	return mustOpen(t, cfg)
}}

// Rule: without the extensions, what TestWriteFlushPublish states holds, too.
func TestWriteFlushPublishWithoutExtensions(t *testing.T) { writeFlushPublish(t, plainBed) }

// Rule: the request in place of a FLUSH is a READ of the first 8 bytes, or of all if there are fewer, and
// the one in place of an ATOMIC_WRITE is a WRITE of 8 bytes, with FENCE or without.
func TestRequestsInPlaceOfExtensions(t *testing.T) {
	a, b := plainBed.connected(t, Config{Conn: Options{Recorder: 16}})
	ctx := testContext(t)
	r := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushGlobal))(t)
	all := must.Get(r.Remote(0, 64))(t)
	if all.Access&verbs.AccessRemoteRead == 0 {
		t.Errorf("the descriptor grants %v, want also REMOTE_READ, for the READ in place of a FLUSH", all.Access)
	}
	for _, n := range []uint64{64, 9, 8, 7, 1} {
		if got, want := done(t, must.Get(a.Start(ctx, new(FlushOp(must.Get(all.At(64-n, n))(t), verbs.FlushGlobal))))(t), nil), min(n, 8); got.Kind != reactor.KindRead || uint64(got.Bytes) != want {
			t.Errorf("the FLUSH of the last %d bytes was %v of %d bytes, want a READ of %d", n, got.Kind, got.Bytes, want)
		}
	}
	for _, op := range []Op{AtomicWriteOp(all, 7), AtomicWriteOp(all, 8).Fence().Signaled()} {
		if got := done(t, must.Get(a.Start(ctx, &op))(t), nil); got.Kind != reactor.KindWrite || got.Bytes != 8 {
			t.Errorf("the ATOMIC_WRITE was %v of %d bytes, want a WRITE of 8", got.Kind, got.Bytes)
		}
	}
	if v := binary.NativeEndian.Uint64(r.Bytes()); v != 8 {
		t.Errorf("the word is %d, want 8", v)
	}
}

// Rule: without FLUSH, a persistent flush needs a declaration that the peer's device writes directly to
// persistent memory, and any flush needs a descriptor that permits a READ. All other mistakes are refused
// as with FLUSH.
func TestFlushWithoutExtensionsMistakes(t *testing.T) {
	a, b := plainBed.connected(t, Config{})
	ctx := testContext(t)
	r := must.Get(b.rt.NewRegion(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushPersistent))(t)
	all := must.Get(r.Remote(0, 64))(t)
	refused := func(what string, op Op, kind error, says ...string) {
		t.Helper()
		_, err := a.Start(ctx, &op)
		mistake(t, what, err, kind, says...)
	}
	refused("a persistent FLUSH without a declaration", FlushOp(all, verbs.FlushPersistent), ErrNotSupported, "no direct write")
	a.DeclareDirectWrite(true)
	done(t, must.Get(a.Start(ctx, new(FlushOp(all, verbs.FlushPersistent))))(t), nil)
	a.DeclareDirectWrite(false)
	refused("a persistent FLUSH after the declaration was withdrawn", FlushOp(all, verbs.FlushPersistent), ErrNotSupported, "no direct write")
	refused("a FLUSH to visibility of memory without FLUSH_GLOBAL", FlushOp(all, verbs.FlushGlobal), ErrPermission, "FLUSH_GLOBAL")
	refused("a FLUSH without a placement type", FlushOp(all, 0), reactor.ErrRequest)
	hidden := all
	hidden.Access = verbs.AccessFlushGlobal
	refused("a FLUSH of memory that a device with FLUSH has registered", FlushOp(hidden, verbs.FlushGlobal), ErrNotSupported, "READ")
	refused("an ATOMIC_WRITE to an odd address", AtomicWriteOp(must.Get(all.At(4, 8))(t), 1), reactor.ErrRequest, "multiple of 8")
}
