package mem

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// needFiles ends the test where files cannot be mapped, after checking the error for that.
func needFiles(t *testing.T) {
	t.Helper()
	if FileSupported {
		return
	}
	if _, err := MapFile(filepath.Join(t.TempDir(), "f"), 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("MapFile without support answers %v, want ErrUnsupported", err)
	}
	t.Skip("this build cannot map files; that it says so was checked")
}

func mustMapFile(t *testing.T, path string, size int) *Arena {
	t.Helper()
	a := must.Get(MapFile(path, size))(t)
	t.Cleanup(func() {
		if err := a.Unmap(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// Synced bytes are in the file, and are there again in a new mapping; the rest of a longer file
// is kept.
func TestSyncedBytesAreInTheFile(t *testing.T) {
	needFiles(t)
	path := filepath.Join(t.TempDir(), "pool")
	page := os.Getpagesize()
	long := bytes.Repeat([]byte{7}, 3*page)
	if err := os.WriteFile(path, long, 0o600); err != nil {
		t.Fatal(err)
	}
	a := mustMapFile(t, path, page+1)
	if (a.Kind() == File) != (a.Method() == "msync") || a.Kind() != File && a.Kind() != FSDAX || a.SyncIsQuick(1) != (a.Kind() == FSDAX) {
		t.Errorf("the file is %v, synced by %s", a.Kind(), a.Method())
	}
	if a.Len() != 2*page || !a.Persistent() || !a.Owned() || a.Bytes()[page] != 7 {
		t.Fatalf("%d bytes, persistent %v, owned %v: want two pages of the file", a.Len(), a.Persistent(), a.Owned())
	}
	if found, ok := Find(a.Addr()+10, 5); !ok || found != a {
		t.Fatal("a mapped file is not found by its address")
	}
	// Both sides of a page boundary.
	copy(a.Bytes()[page-3:], "persist")
	if err := a.Sync(a.Addr()+uint64(page-3), 7); err != nil {
		t.Fatal(err)
	}
	if err := a.Unmap(); err != nil {
		t.Fatal(err)
	}
	copy(long[page-3:], "persist")
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, long) {
		t.Fatalf("the file is not what was synced (%d bytes, %v)", len(got), err)
	}
	b := mustMapFile(t, path, 3*page)
	if !bytes.Equal(b.Bytes(), long) {
		t.Fatal("mapped again, the file shows other bytes")
	}
}

// A missing file is created, zeroed, private, and with space for the mapping.
func TestMapFileMakesTheFile(t *testing.T) {
	needFiles(t)
	path := filepath.Join(t.TempDir(), "new")
	a := mustMapFile(t, path, 5000)
	st, err := os.Stat(path)
	if err != nil || st.Size() != int64(a.Len()) || st.Mode().Perm() != filePermWanted {
		t.Fatalf("file %v, %v; want %d bytes, mode %o", st, err, a.Len(), filePermWanted)
	}
	if i := bytes.IndexFunc(a.Bytes(), func(r rune) bool { return r != 0 }); i >= 0 {
		t.Fatalf("byte %d of a new file is not 0", i)
	}
}

// filePermWanted is the mode of a file that holds memory: its owner's only.
const filePermWanted = 0o600

// Invalid arguments of Sync and MapFile are refused, each with its reason.
func TestFileRefusals(t *testing.T) {
	needFiles(t)
	plain := mustMap(t, 4096, Options{})
	if plain.Persistent() || plain.Kind() != Volatile || plain.Method() != "none" || plain.SyncIsQuick(1) {
		t.Error("anonymous memory calls itself persistent")
	}
	if err := plain.Sync(plain.Addr(), 8); !errors.Is(err, ErrNotPersistent) {
		t.Errorf("Sync of anonymous memory: %v", err)
	}
	dir := t.TempDir()
	a := mustMapFile(t, filepath.Join(dir, "f"), 4096)
	for _, c := range []struct {
		addr uint64
		n    int
	}{{a.Addr() - 1, 1}, {a.Addr() + 4096, 1}, {a.Addr() + 4090, 7}, {a.Addr(), -1}, {0, 8}, {^uint64(0), 8}} {
		if err := a.Sync(c.addr, c.n); !errors.Is(err, ErrSize) {
			t.Errorf("Sync(%#x, %d): %v, want ErrSize", c.addr, c.n, err)
		}
	}
	if err := a.Sync(a.Addr()+4096, 0); err != nil {
		t.Errorf("Sync of nothing: %v", err)
	}
	if err := a.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(a.Addr(), 8); !errors.Is(err, ErrUnmapped) {
		t.Errorf("Sync after Unmap: %v", err)
	}
	if _, err := MapFile(filepath.Join(dir, "f"), 0); !errors.Is(err, ErrSize) {
		t.Errorf("MapFile of 0 bytes: %v", err)
	}
	if _, err := MapFile(dir, 4096); err == nil {
		t.Error("a directory was mapped")
	}
	if _, err := MapFile("/dev/zero", 4096); err == nil {
		t.Error("a device was mapped")
	}
	if _, err := MapFile(filepath.Join(dir, "none", "f"), 4096); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("MapFile in a missing folder: %v", err)
	}
}

// Rule: MapFile that fails, and Discard, remove the file that MapFile has created, and no other. A
// symbolic link stays.
func TestAFileThatIsNotUsedIsRemoved(t *testing.T) {
	needFiles(t)
	const tooLarge = math.MaxInt &^ 0xffff // bytes: of no file system
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	for _, c := range []struct {
		name     string
		old, dir bool // the file exists; the path is a link to it in another folder
	}{{"new", false, false}, {"old", true, false}, {"new, by a link", false, true}, {"old, by a link", true, true}} {
		path := filepath.Join(t.TempDir(), "file")
		file := path
		if c.dir {
			file = filepath.Join(t.TempDir(), "target")
			must.Do(t, os.Symlink(file, path))
		}
		if c.old {
			must.Do(t, os.WriteFile(file, []byte("old"), 0o600))
		}
		if a, err := MapFile(path, tooLarge); err == nil {
			t.Fatalf("%d bytes were mapped: %v", tooLarge, a.Unmap())
		}
		if exists(file) != c.old || !c.dir && exists(path) != c.old || c.dir && !exists(path) {
			t.Errorf("%s: after a failure the file exists: %t, the path: %t", c.name, exists(file), exists(path))
		}
		must.Do(t, must.Get(MapFile(path, 1))(t).Discard())
		if exists(file) != c.old || c.dir && !exists(path) {
			t.Errorf("%s: after Discard the file exists: %t, the path: %t", c.name, exists(file), exists(path))
		}
		must.Do(t, must.Get(MapFile(path, 1))(t).Unmap())
		if !exists(file) {
			t.Errorf("%s: after Unmap the file does not exist", c.name)
		}
	}
}
