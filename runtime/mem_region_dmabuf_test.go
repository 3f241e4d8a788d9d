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

// exported() returns a file of n bytes, which stands for the dma-buf (exported memory) of another
// device. It also returns the memory of the file.
func exported(t *testing.T, n int) (f *os.File, view []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu")
	a, err := mem.MapFile(path, n)
	if !mem.FileSupported {
		t.Skipf("no file mappings on this system: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Unmap(); err != nil {
			t.Error(err)
		}
	})
	f = must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = f.Close() }) // the test may have closed it
	return f, a.Bytes()
}

// imports() imports n bytes of f, beginning at offset, as a region. Only the null device can import
// the file. On another device imports() checks the error and skips the test.
func imports(t *testing.T, b bed, rt *Runtime, f *os.File, offset uint64, n int) *Region {
	t.Helper()
	r, err := rt.ImportDMABuf(int(f.Fd()), offset, n, farAccess)
	if b.name != "null" {
		// A device of the system may import dma-bufs, but must refuse an ordinary file.
		if !errors.Is(err, verbs.ErrNotSupported) && (!onDevice || !errors.Is(err, verbs.ErrInvalid)) {
			t.Fatalf("importing on a device that cannot: %v, want ErrNotSupported", err)
		}
		t.Skipf("this device does not import the file: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rule: peers and local operations can access imported memory of another device. The region begins
// at the offset of the import. Region.Bytes returns nil. MemoryStats counts the region, but not its
// bytes.
func TestImportedMemoryIsReachedWithoutAView(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{})
		ctx := testContext(t)
		f, view := exported(t, 1<<16)
		before := b.rt.MemoryStats()
		const offset, n = 4096 + 64, 20_000
		gpu := imports(t, d, b.rt, f, offset, n)
		if s := b.rt.MemoryStats(); s.Registered != before.Registered || s.Mapped != before.Mapped || s.Regions != before.Regions+1 {
			t.Errorf("the memory counts %+v, before %+v", s, before)
		}
		if err := f.Close(); err != nil { // the region keeps the memory
			t.Fatal(err)
		}
		if gpu.Bytes() != nil || gpu.Len() != n {
			t.Errorf("the region has %d bytes and a view of %d", gpu.Len(), len(gpu.Bytes()))
		}
		// A peer writes.
		at := must.Get(gpu.Remote(100, n-100))(t)
		want := bytes.Repeat([]byte("to the other device."), 500)
		src := bufferOf(t, a.rt, want)
		if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
			t.Fatal(err)
		}
		if got := view[offset+100:][:len(want)]; !bytes.Equal(got, want) {
			t.Errorf("a WRITE left %q", got[:20])
		}
		// Local operations use the imported memory, in part and as a whole.
		far, err := gpu.Slice(100, len(want))
		if err != nil || far.Len() != len(want) || far.Bytes() != nil {
			t.Fatalf("a slice of it: %d bytes, view of %d, error %v", far.Len(), len(far.Bytes()), err)
		}
		part, err := far.Sub(10, 300)
		if err != nil || part.Len() != 300 {
			t.Fatalf("a part of it: %d bytes, error %v", part.Len(), err)
		}
		there := must.Get(a.rt.NewRegion(len(want), farAccess))(t)
		to := must.Get(there.Remote(0, len(want)))(t)
		if _, err := b.Do(ctx, new(WriteOp(far, to))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(there.Bytes(), want) {
			t.Error("a WRITE from it carried something else")
		}
		copy(there.Bytes(), "read back")
		back := must.Get(to.At(0, 300))(t)
		if _, err := b.Do(ctx, new(ReadOp(part, back))); err != nil {
			t.Fatal(err)
		}
		if got := view[offset+110:][:9]; string(got) != "read back" {
			t.Errorf("a READ into it left %q", got)
		}
		sent, err := b.Send(ctx, part)
		done(t, sent, err)
		m := must.Get(a.RecvWait(ctx))(t)
		if !bytes.Equal(m.Data, view[offset+110:][:300]) {
			t.Error("a message from it carried something else")
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
		for _, r := range [][2]int{{-1, 1}, {0, n + 1}, {n, 1}} {
			if _, err := gpu.Slice(r[0], r[1]); !errors.As(err, new(*RangeError)) {
				t.Errorf("a slice of %d bytes from %d: %v", r[1], r[0], err)
			}
		}
		if _, err := far.Sub(1, far.Len()); !errors.As(err, new(*RangeError)) {
			t.Errorf("a part beyond its end: %v", err)
		}
		if err := gpu.Sync(0, 1); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Sync of another device's memory: %v", err)
		}
		if err := errors.Join(gpu.Close(), gpu.Close(), there.Close()); err != nil {
			t.Error(err)
		}
		if _, err := b.Do(ctx, new(WriteOp(part, to))); !errors.Is(err, ErrReleased) {
			t.Errorf("a WRITE from a closed region: %v", err)
		}
	})
}

// Rule: ImportDMABuf refuses invalid arguments, and then leaves nothing behind.
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
			"no bytes":        {int(f.Fd()), 0, 0, farAccess},
			"a bad fd":        {-1, 4096, 0, farAccess},
			"too many bytes":  {int(f.Fd()), 1<<16 + 1, 0, farAccess},
			"windows":         {int(f.Fd()), 4096, 0, farAccess | verbs.AccessMWBind},
			"an access alone": {int(f.Fd()), 4096, 0, verbs.AccessRemoteWrite},
		} {
			if _, err := rt.ImportDMABuf(x.fd, x.offset, x.n, x.access); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if s := rt.MemoryStats(); s != before {
			t.Errorf("the memory counts %+v, before %+v", s, before)
		}
	})
}

// Rule: an on-demand region can be used like any other region, and does not count as locked memory.
// Prefetch works on an on-demand region and fails on a locked one.
func TestRegionOnDemand(t *testing.T) {
	onBeds(t, func(t *testing.T, d bed) {
		a, b := d.connected(t, Config{})
		ctx := testContext(t)
		before := b.rt.MemoryStats()
		r, err := b.rt.NewRegion(1<<20, farAccess|verbs.AccessOnDemand)
		if errors.Is(err, verbs.ErrNotSupported) && onDevice {
			t.Skipf("this device pages nothing on demand: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := b.rt.MemoryStats(); s.Registered != before.Registered || s.Mapped <= before.Mapped {
			t.Errorf("a region on demand counts %d bytes as locked, %d as mapped", s.Registered-before.Registered, s.Mapped-before.Mapped)
		}
		for _, write := range []bool{false, true} {
			if err := r.Prefetch(1, 1<<20-1, write); err != nil {
				t.Errorf("Prefetch, write %v: %v", write, err)
			}
		}
		if err := r.Prefetch(0, 0, false); err != nil {
			t.Errorf("Prefetch of nothing: %v", err)
		}
		if err := r.Prefetch(1, 1<<20, false); !errors.As(err, new(*RangeError)) {
			t.Errorf("Prefetch beyond the end: %v", err)
		}
		at := must.Get(r.Remote(0, 1<<20))(t)
		src := bufferOf(t, a.rt, []byte("paged"))
		if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
			t.Fatal(err)
		}
		if got := string(r.Bytes()[:5]); got != "paged" {
			t.Errorf("a WRITE left %q", got)
		}
		locked := must.Get(b.rt.NewRegion(4096, farAccess))(t)
		if err := locked.Prefetch(0, 4096, false); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Prefetch of locked memory: %v", err)
		}
		if err := errors.Join(r.Close(), locked.Close()); err != nil {
			t.Error(err)
		}
		if err := r.Prefetch(0, 1, false); !errors.Is(err, ErrReleased) {
			t.Errorf("Prefetch after Close: %v", err)
		}
		if s := b.rt.MemoryStats(); s.Registered != before.Registered {
			t.Errorf("%d bytes are counted as locked, before %d", s.Registered, before.Registered)
		}
	})
}

const fileAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessFlushPersistent

// fileRegion returns a region on a file. It skips the test if the system cannot map files, or if
// the device refuses their memory.
func fileRegion(t *testing.T, rt *Runtime, path string, n int) *Region {
	t.Helper()
	r, err := rt.NewFileRegion(path, n, fileAccess)
	if !mem.FileSupported {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("without file mappings: %v, want %v", err, errors.ErrUnsupported)
		}
		t.Skip("no file mappings on this system: it said so")
	}
	if onDevice && errors.Is(err, syscall.EINVAL) {
		mistake(t, "a file that is not on persistent memory", err, verbs.ErrInvalid, "DAX")
		t.Skip("a device of the kernel keeps only persistent memory (Linux 6.12 drivers/infiniband/sw/rxe/rxe_mr.c, is_pmem_page): it said so")
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rule: bytes that a peer has written and flushed persistently are in the file. Another runtime
// that opens the file finds these bytes.
func TestPersistentFlushOutlivesTheRuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r := fileRegion(t, b.rt, path, 10_000)
	at := must.Get(r.Remote(5000, 5))(t)
	src := bufferOf(t, a.rt, []byte("entry"))
	if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
		t.Fatal(err)
	}
	f, err := a.Start(ctx, new(FlushOp(at, verbs.FlushPersistent)))
	done(t, f, err)
	onDisk := must.Get(os.ReadFile(path))(t)
	if string(onDisk[5000:5005]) != "entry" {
		t.Errorf("the file reads %q", onDisk[5000:5005])
	}
	copy(r.Bytes()[100:], "ours")
	if err := r.Sync(100, 4); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := fileRegion(t, a.rt, path, 10_000)
	if got := string(again.Bytes()[5000:5005]) + string(again.Bytes()[100:104]); got != "entryours" {
		t.Errorf("opened again it reads %q", got)
	}
}

// Rule: Sync fails on a region without a file, for bytes outside the region, and after Close.
// NewRegion refuses FLUSH_PERSISTENT. NewFileRegion fails if the file's folder does not exist.
func TestFileRegionMistakes(t *testing.T) {
	rt := mustOpen(t, Config{})
	plain, err := rt.NewRegion(64, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	mistake(t, "syncing plain memory", plain.Sync(0, 8), verbs.ErrInvalid, "not on a file")
	mistake(t, "syncing outside", plain.Sync(60, 8), ErrRange, "60")
	_, err = rt.NewRegion(64, fileAccess)
	mistake(t, "persistent plain memory", err, verbs.ErrInvalid, "NewFileRegion")
	_, err = rt.NewFileRegion(filepath.Join(t.TempDir(), "no", "such"), 64, fileAccess)
	if err == nil {
		t.Error("a file in no folder was mapped")
	}
	r := fileRegion(t, rt, filepath.Join(t.TempDir(), "f"), 64)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	mistake(t, "syncing after Close", r.Sync(0, 8), ErrReleased)
}
