package runtime

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

const farAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// exported returns a file of n bytes, and a mapping of the file. The file takes the place of a dma-buf,
// which is memory that another device exports.
func exported(t *testing.T, n int) (f *os.File, view []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu")
	a, err := mem.MapFile(path, n)
	if !mem.FileSupported {
		t.Skipf("this system has no file mappings: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Unmap(); err != nil {
			t.Errorf("unmapping the file: %v", err)
		}
	})
	f = must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = f.Close() }) // the error is ignored, because the test may have closed f already
	return f, a.Bytes()
}

// imports returns a region of n bytes of f, beginning at the given offset, by ImportDMABuf. Only the
// null device can import an ordinary file. On every other device, imports checks the error of
// ImportDMABuf and skips the test.
func imports(t *testing.T, b bed, rt *Runtime, f *os.File, offset uint64, n int) *Region {
	t.Helper()
	r, err := rt.ImportDMABuf(int(f.Fd()), offset, n, farAccess)
	if !b.null {
		// A kernel device may import dma-bufs, but must refuse an ordinary file.
		if !errors.Is(err, verbs.ErrNotSupported) && (!onDevice || !errors.Is(err, verbs.ErrInvalid)) {
			t.Fatalf("importing an ordinary file: %v, want ErrNotSupported (or ErrInvalid on a kernel device)", err)
		}
		t.Skipf("this device cannot import an ordinary file: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rule: if memory of another device is imported, peers and local operations can access it. The region
// begins at the offset of the import. Region.Bytes returns nil. MemoryStats counts the region, but not
// its bytes.
func TestImportedMemoryIsReachedWithoutAView(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{})
		ctx := testContext(t)
		f, view := exported(t, 1<<16)
		before := b.rt.MemoryStats()
		const offset, n = 4096 + 64, 20_000
		gpu := imports(t, d, b.rt, f, offset, n)
		if s := b.rt.MemoryStats(); s.Registered != before.Registered || s.Mapped != before.Mapped || s.Regions != before.Regions+1 {
			t.Errorf("after the import MemoryStats returns %+v, before it %+v; want one region more than before, and as many bytes as before", s, before)
		}
		if err := f.Close(); err != nil { // the region still uses the memory
			t.Fatal(err)
		}
		if gpu.Bytes() != nil || gpu.Len() != n {
			t.Errorf("the region has the length %d and %d visible bytes, want %d and none", gpu.Len(), len(gpu.Bytes()), n)
		}
		// A peer writes.
		at := must.Get(gpu.Remote(100, n-100))(t)
		want := bytes.Repeat([]byte("to the other device."), 500)
		src := bufferOf(t, a.rt, want)
		if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
			t.Fatal(err)
		}
		if got := view[offset+100:][:len(want)]; !bytes.Equal(got, want) {
			t.Errorf("after a peer's WRITE the memory begins with %q, want %q", got[:20], want[:20])
		}
		// Local operations use the imported memory, in part and as a whole.
		far, err := gpu.Slice(100, len(want))
		if err != nil || far.Len() != len(want) || far.Bytes() != nil {
			t.Fatalf("a slice of the region has the length %d and %d visible bytes, error %v; want %d and none", far.Len(), len(far.Bytes()), err, len(want))
		}
		part, err := far.Sub(10, 300)
		if err != nil || part.Len() != 300 {
			t.Fatalf("a part of the slice has %d bytes, error %v; want 300", part.Len(), err)
		}
		there := must.Get(a.rt.NewRegion(len(want), farAccess))(t)
		to := must.Get(there.Remote(0, len(want)))(t)
		if _, err := b.Do(ctx, new(WriteOp(far, to))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(there.Bytes(), want) {
			t.Error("a WRITE from the imported memory delivered other bytes than this memory has")
		}
		copy(there.Bytes(), "read back")
		back := must.Get(to.At(0, 300))(t)
		if _, err := b.Do(ctx, new(ReadOp(part, back))); err != nil {
			t.Fatal(err)
		}
		if got := view[offset+110:][:9]; string(got) != "read back" {
			t.Errorf("after a READ into the imported memory it has %q, want \"read back\"", got)
		}
		sent, err := b.Send(ctx, part)
		done(t, sent, err)
		m := must.Get(a.RecvWait(ctx))(t)
		if !bytes.Equal(m.Data, view[offset+110:][:300]) {
			t.Error("a SEND from the imported memory delivered other bytes than this memory has")
		}
		if err := m.Release(); err != nil {
			t.Errorf("releasing the message: %v", err)
		}
		for _, r := range [][2]int{{-1, 1}, {0, n + 1}, {n, 1}} {
			if _, err := gpu.Slice(r[0], r[1]); !errors.As(err, new(*RangeError)) {
				t.Errorf("Slice(%d, %d) of a region of %d bytes: %v, want a RangeError", r[0], r[1], n, err)
			}
		}
		if _, err := far.Sub(1, far.Len()); !errors.As(err, new(*RangeError)) {
			t.Errorf("Sub beyond the end of a slice: %v, want a RangeError", err)
		}
		if err := gpu.Sync(0, 1); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Sync of another device's memory: %v, want ErrInvalid", err)
		}
		if err := errors.Join(gpu.Close(), gpu.Close(), there.Close()); err != nil {
			t.Errorf("closing the regions, the imported one two times: %v, want no error", err)
		}
		if _, err := b.Do(ctx, new(WriteOp(part, to))); !errors.Is(err, ErrReleased) {
			t.Errorf("a WRITE from a closed region: %v, want ErrReleased", err)
		}
	})
}

// Rule: if the arguments of ImportDMABuf are invalid, it returns ErrInvalid, and MemoryStats does not
// change.
func TestImportRefusals(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		rt := d.open(t, Config{}, 0)
		f, _ := exported(t, 1<<16)
		if err := imports(t, d, rt, f, 0, 4096).Close(); err != nil {
			t.Fatal(err)
		}
		before := rt.MemoryStats()
		for what, x := range map[string]struct {
			fd, n  int
			offset uint64
			access verbs.AccessFlags
		}{
			"no bytes":                         {int(f.Fd()), 0, 0, farAccess},
			"an invalid file descriptor":       {-1, 4096, 0, farAccess},
			"more bytes than the file":         {int(f.Fd()), 1<<16 + 1, 0, farAccess},
			"access for binding windows":       {int(f.Fd()), 4096, 0, farAccess | verbs.AccessMWBind},
			"REMOTE_WRITE without LOCAL_WRITE": {int(f.Fd()), 4096, 0, verbs.AccessRemoteWrite},
		} {
			if _, err := rt.ImportDMABuf(x.fd, x.offset, x.n, x.access); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("ImportDMABuf with %s: %v, want ErrInvalid", what, err)
			}
		}
		if s := rt.MemoryStats(); s != before {
			t.Errorf("after the refusals MemoryStats returns %+v, want %+v as before", s, before)
		}
	})
}

// Rule: if a region is on demand, operations use it like any other region, it does not count as
// locked memory, and Prefetch succeeds. If the memory of a region is locked, Prefetch fails.
func TestRegionOnDemand(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{})
		ctx := testContext(t)
		before := b.rt.MemoryStats()
		r, err := b.rt.NewRegion(1<<20, farAccess|verbs.AccessOnDemand)
		if errors.Is(err, verbs.ErrNotSupported) && onDevice {
			t.Skipf("this device has no on-demand paging: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := b.rt.MemoryStats(); s.Registered != before.Registered || s.Mapped <= before.Mapped {
			t.Errorf("an on-demand region adds %d locked bytes and %d mapped bytes, want 0 and more than 0", s.Registered-before.Registered, s.Mapped-before.Mapped)
		}
		for _, write := range []bool{false, true} {
			if err := r.Prefetch(1, 1<<20-1, write); err != nil {
				t.Errorf("Prefetch with write %t: %v, want no error", write, err)
			}
		}
		if err := r.Prefetch(0, 0, false); err != nil {
			t.Errorf("Prefetch of 0 bytes: %v, want no error", err)
		}
		if err := r.Prefetch(1, 1<<20, false); !errors.As(err, new(*RangeError)) {
			t.Errorf("Prefetch beyond the end of the region: %v, want a RangeError", err)
		}
		at := must.Get(r.Remote(0, 1<<20))(t)
		src := bufferOf(t, a.rt, []byte("paged"))
		if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
			t.Fatal(err)
		}
		if got := string(r.Bytes()[:5]); got != "paged" {
			t.Errorf("after a WRITE the region begins with %q, want \"paged\"", got)
		}
		locked := must.Get(b.rt.NewRegion(4096, farAccess))(t)
		if err := locked.Prefetch(0, 4096, false); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Prefetch of a region with locked memory: %v, want ErrInvalid", err)
		}
		if err := errors.Join(r.Close(), locked.Close()); err != nil {
			t.Errorf("closing the two regions: %v, want no error", err)
		}
		if err := r.Prefetch(0, 1, false); !errors.Is(err, ErrReleased) {
			t.Errorf("Prefetch after Close: %v, want ErrReleased", err)
		}
		if s := b.rt.MemoryStats(); s.Registered != before.Registered {
			t.Errorf("after Close MemoryStats counts %d locked bytes, want %d as before", s.Registered, before.Registered)
		}
	})
}

const fileAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessFlushPersistent

// fileRegion returns a region of n bytes on the file with the given path. If the system cannot map
// files, or if the device refuses the memory of files, fileRegion checks the error and skips the test.
func fileRegion(t *testing.T, rt *Runtime, path string, n int) *Region {
	t.Helper()
	r, err := rt.NewFileRegion(path, n, fileAccess)
	if !mem.FileSupported {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("NewFileRegion on a system without file mappings: %v, want %v", err, errors.ErrUnsupported)
		}
		t.Skip("this system has no file mappings, and NewFileRegion returned ErrUnsupported as it must")
	}
	if onDevice && errors.Is(err, syscall.EINVAL) {
		mistake(t, "NewFileRegion of a file that is not on persistent memory", err, verbs.ErrInvalid, "DAX")
		t.Skip("this kernel device accepts FLUSH_PERSISTENT only for persistent memory (Linux 6.12 drivers/infiniband/sw/rxe/rxe_mr.c, is_pmem_page)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rule: if a peer writes bytes to a region on a file and flushes them persistently, the bytes are in
// the file. Another runtime that maps the file finds these bytes.
func TestPersistentFlushOutlivesTheRuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r := fileRegion(t, b.rt, path, 10_000)
	if kind, method := r.Persistence(); (kind != "file" || method != "msync") && (kind != "fsdax" || method == "msync") {
		t.Errorf("the region is on %q, persistent by %q", kind, method)
	}
	at := must.Get(r.Remote(5000, 5))(t)
	src := bufferOf(t, a.rt, []byte("entry"))
	if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
		t.Fatal(err)
	}
	f, err := a.Start(ctx, new(FlushOp(at, verbs.FlushPersistent)))
	done(t, f, err)
	onDisk := must.Get(os.ReadFile(path))(t)
	if string(onDisk[5000:5005]) != "entry" {
		t.Errorf("at offset 5000 the file has %q, want \"entry\"", onDisk[5000:5005])
	}
	copy(r.Bytes()[100:], "ours")
	if err := r.Sync(100, 4); err != nil {
		t.Errorf("Sync: %v, want no error", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := fileRegion(t, a.rt, path, 10_000)
	if got := string(again.Bytes()[5000:5005]) + string(again.Bytes()[100:104]); got != "entryours" {
		t.Errorf("a new region on the file has %q at the offsets 5000 and 100, want \"entryours\"", got)
	}
}

// Rule: a window on a file opens its part of the file to persistent FLUSHes of its peer, if the region
// permits them, and no other part.
func TestPersistentFlushThroughAWindow(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	path := filepath.Join(t.TempDir(), "log")
	fileRegion(t, b.rt, path+"probe", 64) // skips the test where there can be none
	r := must.Get(b.rt.NewFileRegion(path, 8192, fileAccess|verbs.AccessMWBind))(t)
	w := must.Get(b.NewWindow())(t)
	at := bound(t, w, r, 4096, 64, verbs.AccessRemoteWrite|verbs.AccessFlushPersistent)
	src := bufferOf(t, a.rt, []byte("entry"))
	entry := must.Get(at.At(8, 5))(t)
	if _, err := a.Do(ctx, new(WriteOp(src.Slice(), entry))); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Do(ctx, new(FlushOp(entry, verbs.FlushPersistent))); err != nil {
		t.Fatal(err)
	}
	if onDisk := must.Get(os.ReadFile(path))(t); string(onDisk[4104:4109]) != "entry" {
		t.Errorf("at offset 4104 the file has %q, want \"entry\"", onDisk[4104:4109])
	}
	plain := must.Get(b.rt.NewFileRegion(path, 8192, verbs.AccessLocalWrite|verbs.AccessMWBind))(t)
	other := must.Get(b.NewWindow())(t)
	_, _, err := other.Bind(ctx, plain, 0, 64, verbs.AccessFlushPersistent)
	mistake(t, "a window with more FLUSH access than its region", err, ErrPermission, "FLUSH_PERSISTENT")
	beyond := entry
	beyond.Addr += 64
	_, err = a.Do(ctx, new(FlushOp(beyond, verbs.FlushPersistent)))
	if wc, ok := errors.AsType[*verbs.WCError](err); !ok || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a FLUSH beyond the window: %v, want %v", err, verbs.WCRemAccessErr)
	}
}

// Rule: a file region counts against MemoryConfig.MaxBytes with all bytes of its pages. If these bytes
// exceed the limit, NewFileRegion fails and leaves nothing mapped.
func TestFileRegionWithinTheLimit(t *testing.T) {
	if !mem.FileSupported {
		t.Skip("this system has no file mappings")
	}
	m, _ := testMemory(t, MemoryConfig{MaxBytes: slabSize + 100})
	_, err := m.NewFileRegion(filepath.Join(t.TempDir(), "file"), slabSize+50, verbs.AccessLocalWrite)
	if !errors.Is(err, ErrNoMemory) || m.Stats().Mapped != 0 {
		t.Errorf("NewFileRegion of %d bytes with a limit of %d: %v, and %d bytes are mapped; want %v and none", slabSize+50, slabSize+100, err, m.Stats().Mapped, ErrNoMemory)
	}
}

// Rule: if the region has no file, if the bytes are outside the region, or if the region is closed,
// Sync fails. If the access has FLUSH_PERSISTENT, and the device executes FLUSH, NewRegion fails. If the
// file's folder does not exist, NewFileRegion fails.
func TestFileRegionMistakes(t *testing.T) {
	rt := mustOpen(t, Config{})
	plain, err := rt.NewRegion(64, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	if kind, method := plain.Persistence(); kind != "volatile" || method != "none" {
		t.Errorf("a region without a file is on %q, persistent by %q", kind, method)
	}
	mistake(t, "Sync of a region without a file", plain.Sync(0, 8), verbs.ErrInvalid, "not on a file")
	mistake(t, "Sync of bytes outside the region", plain.Sync(60, 8), ErrRange, "60")
	if rt.DeviceAttr().Opcodes.Has(verbs.WRFlush) { // otherwise the device is not asked for the access
		_, err = rt.NewRegion(64, fileAccess)
		mistake(t, "NewRegion with FLUSH_PERSISTENT", err, verbs.ErrInvalid, "NewFileRegion")
	}
	_, err = rt.NewFileRegion(filepath.Join(t.TempDir(), "no", "such"), 64, fileAccess)
	if err == nil {
		t.Error("NewFileRegion of a file in a folder that does not exist succeeded, want an error")
	}
	r := fileRegion(t, rt, filepath.Join(t.TempDir(), "f"), 64)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	mistake(t, "Sync after Close", r.Sync(0, 8), ErrReleased)
}
