package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

const fileAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessFlushPersistent

// fileRegion is a file's region, where there are such.
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

// Rule: what a peer wrote and flushed persistently is in the file, and there again
// when another runtime opens it.
func TestPersistentFlushOutlivesTheRuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	a, b := connected(t, Config{})
	ctx := testContext(t)
	r := fileRegion(t, b.rt, path, 10_000)
	at, err := r.Remote(5000, 5)
	if err != nil {
		t.Fatal(err)
	}
	src := bufferOf(t, a.rt, []byte("entry"))
	if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
		t.Fatal(err)
	}
	f, err := a.Start(ctx, new(FlushOp(at, verbs.FlushPersistent)))
	done(t, f, err)
	onDisk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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

// Rule: what is no file's cannot be synced, and a file that cannot be is named.
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
