package runtime

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	stdruntime "runtime"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: an operation that must not wait never locks the mutex of the memory, which another goroutine may
// hold while it enters the kernel. Without a free buffer it returns ErrNoBuffer, and the runtime makes
// one. (The bug: TryStartTo waited, with the turn held, for the disk of another goroutine.)
func TestTryStartToDoesNotWaitForMemory(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{MessageSize: 128 << 10}})
	ctx := testContext(t)
	sent := make(mailSink, 16)
	data := make([]byte, 50_000)
	giveBack := lendAll(a.rt.mem)
	a.rt.mem.mu.Lock()
	for name, start := range map[string]func(op *Op, sink Sink, tag uint64) error{"Conn": a.TryStartTo, "Batch": a.Batch().TryStartTo} {
		if err := start(new(SendBytesOp(data)), sent, 0); !errors.Is(err, ErrNoBuffer) || RetryOf(err) != RetryLater {
			t.Errorf("%s.TryStartTo while another goroutine holds the mutex: %v, want ErrNoBuffer", name, err)
		}
	}
	a.rt.mem.mu.Unlock()
	var err error
	eventually(t, "a buffer", func() bool {
		err = a.TryStartTo(new(SendBytesOp(data)), sent, 7)
		return !errors.Is(err, ErrNoBuffer)
	})
	must.Do(t, err)
	m := must.Get(b.RecvWait(ctx))(t)
	if len(m.Data) != len(data) {
		t.Errorf("a message of %d bytes arrived, want %d", len(m.Data), len(data))
	}
	must.Do(t, m.Release())
	giveBack()
	if got := <-sent; got.err != nil || got.r.Tag != 7 {
		t.Errorf("the message completed with %+v", got)
	}
	if s := a.rt.MemoryStats(); s.Buffers > s.Receives {
		t.Errorf("%d buffers are leased, %d of them for receives; want no others", s.Buffers, s.Receives)
	}
}

// Rule: TryStartTo of a batch waits neither for a credit nor for room for the requests of a split transfer. (The bug: it
// did, as its mode is NonBlock and another bit.)
func TestTryStartToOfABatchDoesNotWait(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 1}})
	ctx := testContext(t)
	const bytes = 200
	far := must.Get(b.rt.NewRegion(bytes, openToPeers))(t)
	near := must.Get(must.Get(a.rt.NewRegion(bytes, verbs.AccessLocalWrite))(t).Slice(0, bytes))(t)
	done(t, must.Get(a.SendBytes(ctx, []byte("takes the credit")))(t), nil)
	a.oneWR = 64
	for name, c := range map[string]struct {
		op   Op
		want error
	}{
		"a message without a credit":     {SendBytesOp([]byte("x")), ErrNoCredit},
		"a transfer of several requests": {WriteOp(near, must.Get(far.Remote(0, bytes))(t)), ErrPieces},
	} {
		ended := make(chan error, 1)
		go func() { ended <- a.Batch().TryStartTo(&c.op, nothing{}, 0) }()
		select {
		case err := <-ended:
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		case <-ctx.Done():
			t.Errorf("%s: TryStartTo waits, want %v", name, c.want)
		}
	}
}

// lendAll leases all free blocks of m, and returns a function that releases them.
func lendAll(m *memory) (giveBack func()) {
	var all []Buffer
	for p := range m.allPools() {
		for s, i, ok := p.get(); ok; s, i, ok = p.get() {
			all = append(all, s.lend(i, 1))
		}
	}
	return func() {
		for _, b := range all {
			b.drop()
		}
	}
}

// Rule: Start, Send, Call and ReadAt wait for memory until their contexts end.
func TestWaitsForMemoryEndWithTheContext(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{MessageSize: 128 << 10, MaxMessage: 4 << 20}})
	region := must.Get(b.rt.NewRegion(1<<20, openToPeers))(t)
	remote := must.Get(region.Remote(0, 1<<20))(t)
	pooled, big := make([]byte, 50_000), make([]byte, 2<<20)
	defer lendAll(a.rt.mem)()
	a.rt.mem.mu.Lock()
	for name, call := range map[string]func(ctx context.Context) error{
		"Start":            func(ctx context.Context) error { return failure(a.Start(ctx, new(SendBytesOp(pooled)))) },
		"SendBytes":        func(ctx context.Context) error { return failure(a.SendBytes(ctx, pooled)) },
		"SendBytes, large": func(ctx context.Context) error { return failure(a.SendBytes(ctx, big)) },
		"Call":             func(ctx context.Context) error { return failure(a.Call(ctx, new(SendBytesOp(pooled)))) },
		"Dial": func(ctx context.Context) error {
			return failure(a.rt.DialOptions(ctx, "127.0.0.1:1", Options{MessageSize: 64 << 10})) // with a pool of its own
		},
		"Dial with receives of its own": func(ctx context.Context) error {
			return failure(a.rt.DialOptions(ctx, "127.0.0.1:1", Options{RecvCredits: 4}))
		},
		"ReadAt of a chunk": func(ctx context.Context) error { return failure(a.At(ctx, remote).ReadAt(make([]byte, 200<<10), 0)) },
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		stdruntime.Gosched() // so that the call may have begun
		cancel(nil)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the error of the context", name, err)
		}
	}
	a.rt.mem.mu.Unlock()
	mustClose(t, region)
}

// failure returns the error of a call with a result.
func failure[T any](_ T, err error) error { return err }

// Rule: a file is opened, extended and synced before the mutex of the memory is locked. If the region is
// refused, a file that was created for it is removed.
func TestNewFileRegionWaitsForTheDiskWithoutTheMutex(t *testing.T) {
	if !mem.FileSupported {
		t.Skip("this system has no file mappings")
	}
	m, pd := testMemory(t, MemoryConfig{MaxBytes: slabSize})
	path := filepath.Join(t.TempDir(), "file")
	m.mapFile = func(path string, size int) (*mem.Arena, error) {
		select {
		case m.mu.held <- struct{}{}:
			m.mu.Unlock()
		default:
			t.Error("the mutex is locked while the file is mapped")
		}
		return mem.MapFile(path, size)
	}
	mustClose(t, must.Get(m.NewFileRegion(path, 8192, verbs.AccessLocalWrite))(t))
	must.Do(t, os.Remove(path))
	refused := errors.New("refused")
	for name, err := range map[string]error{
		"the limit": failure(m.NewFileRegion(path, slabSize+1, verbs.AccessLocalWrite)),
		"the device": func() error {
			pd.refuse = func(uint64) error { return refused }
			defer func() { pd.refuse = nil }()
			return failure(m.NewFileRegion(path, 8192, verbs.AccessLocalWrite))
		}(),
		"access": failure(m.NewFileRegion(path, 8192, verbs.AccessRemoteWrite)),
	} {
		if _, serr := os.Stat(path); err == nil || !errors.Is(serr, os.ErrNotExist) {
			t.Errorf("refused by %s: %v, and the file: %v; want an error, and no file", name, err, serr)
		}
	}
	if s := m.Stats(); s.Mapped != 0 || s.Registered != 0 || s.Regions != 0 {
		t.Errorf("after failures: %+v, want nothing", s)
	}
	// Close beside the disk: the region is refused, and nothing is left.
	m.mapFile = func(path string, size int) (*mem.Arena, error) {
		must.Do(t, m.Close())
		return mem.MapFile(path, size)
	}
	err := failure(m.NewFileRegion(path, 8192, verbs.AccessLocalWrite))
	if _, serr := os.Stat(path); !errors.Is(err, ErrClosed) || !errors.Is(serr, os.ErrNotExist) {
		t.Errorf("closed beside the disk: %v, and the file: %v; want ErrClosed, and no file", err, serr)
	}
}

// Rule: ReadAt and WriteAt use the buffers of earlier chunks if there is no memory for more. (The bug:
// they failed although one buffer suffices.)
func TestRemoteMemoryWithOneBuffer(t *testing.T) {
	a, b := connected(t, Config{Memory: MemoryConfig{MaxBytes: 4 * slabSize}})
	ctx := testContext(t)
	region := must.Get(b.rt.NewRegion(1<<20, openToPeers))(t)
	fillBytes := region.Bytes()
	for i := range fillBytes {
		fillBytes[i] = byte(i * 7)
	}
	remote := must.Get(region.Remote(0, 1<<20))(t)
	var all []Buffer
	for {
		buf, err := a.rt.Alloc(ioChunk)
		if errors.Is(err, ErrNoMemory) {
			break
		}
		must.Do(t, err)
		all = append(all, buf)
	}
	p := make([]byte, 1<<20)
	if _, err := a.At(ctx, remote).ReadAt(p, 0); !errors.Is(err, ErrNoMemory) {
		t.Errorf("without any buffer: %v, want ErrNoMemory", err)
	}
	must.Do(t, all[0].Release())
	if n, err := a.At(ctx, remote).ReadAt(p, 0); n != len(p) || err != nil || string(p) != string(fillBytes) {
		t.Errorf("with one buffer: %d bytes, %v; want all of the region", n, err)
	}
	for _, buf := range all[1:] {
		must.Do(t, buf.Release())
	}
	mustClose(t, region)
}

// Rule: after an error WriteAt returns the number of bytes in the chunks before it, which are in the peer's
// memory.
func TestWriteAtCountsTheChunksBeforeAnError(t *testing.T) {
	a, b := connected(t, Config{})
	region := must.Get(b.rt.NewRegion(2*ioChunk, openToPeers))(t)
	remote := must.Get(region.Remote(0, 2*ioChunk))(t)
	remote.Length += ioChunk // of which the peer's device knows nothing
	src := bytes.Repeat([]byte{7}, 3*ioChunk)
	n, err := a.At(testContext(t), remote).WriteAt(src, 0)
	if wc, ok := errors.AsType[*verbs.WCError](err); !ok || wc.Status != verbs.WCRemAccessErr || n != 2*ioChunk || !bytes.Equal(region.Bytes(), src[:n]) {
		t.Errorf("WriteAt returned %d, %v; want %d bytes, which are in the peer's memory, and REM_ACCESS_ERR", n, err, 2*ioChunk)
	}
	mustClose(t, region)
}

// Rule: memory that cannot be unmapped still counts, and a later Close unmaps it. (The bug: it was
// forgotten.) A pin stands for the system's refusal.
func TestMemoryThatStaysMappedIsUnmappedLater(t *testing.T) {
	m, _ := testMemory(t, MemoryConfig{})
	r := must.Get(m.NewRegion(4096, openToPeers))(t)
	region := r.own.arena
	must.Do(t, region.Pin())
	for range 2 {
		if err := r.Close(); !errors.Is(err, mem.ErrPinned) {
			t.Errorf("Close of a region that is not unmapped: %v, want ErrPinned", err)
		}
	}
	if s := m.Stats(); s.Mapped != int64(region.Len()) || s.Registered != 0 {
		t.Errorf("after that: %d bytes are mapped, %d registered; want %d, 0", s.Mapped, s.Registered, region.Len())
	}
	region.Unpin()
	mustClose(t, r)
	b := mustAlloc(t, m, 3<<20)
	big := b.s.lease.home.(*bigBuffer).arena
	must.Do(t, big.Pin())
	mustRelease(t, b)
	if s := m.Stats(); s.Mapped != int64(big.Len()) { // Stats has tried to unmap it
		t.Errorf("after Release of a buffer that is not unmapped %d bytes are mapped, want %d", s.Mapped, big.Len())
	}
	big.Unpin()
	must.Do(t, m.Close())
	if s := m.Stats(); s.Mapped != 0 || s.Registered != 0 || big.Len() != 0 {
		t.Errorf("after Close of the memory: %+v, want nothing", s)
	}
}
