//go:build linux && !portable

package mem

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/must"
	"golang.org/x/sys/unix"
)

// resident counts the resident pages of an arena.
func resident(t *testing.T, a *Arena) (n int) {
	t.Helper()
	vec := make([]byte, a.Len()/os.Getpagesize())
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(a.base), uintptr(a.Len()), uintptr(unsafe.Pointer(&vec[0]))); e != 0 {
		t.Fatalf("mincore: %v", e)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

// Rule: Prefetch brings in the pages that overlap its range, and no others; a range outside the
// arena does nothing.
func TestPrefetchBringsItsPages(t *testing.T) {
	page := os.Getpagesize()
	a := mustMap(t, 16*page, Options{})
	if err := unix.Madvise(a.Bytes()[:page], unix.MADV_POPULATE_READ); err == unix.EINVAL || err == nil && resident(t, a) == 0 {
		t.Skip("this system has no MADV_POPULATE_READ (Linux 5.14; qemu-user takes it and does nothing)")
	}
	a.Prefetch(a.Addr()+uint64(14*page), 3*page, true)
	if n := resident(t, a); n != 1 {
		t.Errorf("%d pages are there after a range that ends outside, want the one of the probe", n)
	}
	a.Prefetch(a.Addr()+uint64(4*page)-1, 2, true)
	if n := resident(t, a); n != 3 {
		t.Errorf("%d pages are there, want the probe's and the two that hold the range", n)
	}
	a.Prefetch(a.Addr()+uint64(8*page), 2*page, false)
	if n := resident(t, a); n != 5 {
		t.Errorf("%d pages are there after a second range of two, want 5", n)
	}
}

// A signal during a call is not returned as an error; any other error is.
func TestSignalsDoNotFailAFile(t *testing.T) {
	for _, want := range []error{nil, unix.ENOSPC} {
		calls := 0
		err := uninterrupted(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return want
		})
		if !errors.Is(err, want) || calls != 4 {
			t.Errorf("interrupted three times: %v after %d calls, want %v after 4", err, calls, want)
		}
	}
}

// Rule: a file that is made through symbolic links that led nowhere gets its own name, in its own directory. That is the
// directory whose name MapFile syncs, not that of a link, which is older.
func TestAFileBehindLinksIsMadeInItsDirectory(t *testing.T) {
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	links, files := filepath.Join(dir, "links"), filepath.Join(dir, "files")
	must.Do(t, errors.Join(os.Mkdir(links, 0o700), os.Mkdir(files, 0o700),
		os.Symlink("second", filepath.Join(links, "first")), os.Symlink("../files/log", filepath.Join(links, "second"))))
	f, created, err := openFile(filepath.Join(links, "first"))
	if err != nil || !created {
		t.Fatalf("the file was made: %v, %v", created, err)
	}
	defer func() { must.Do(t, f.Close()) }()
	got, want := must.Get(os.Stat(folder(f.Name())))(t), must.Get(os.Stat(files))(t)
	if !os.SameFile(got, want) {
		t.Errorf("the name that is synced is in %s, want %s", folder(f.Name()), files)
	}
}

// Rule: Resident reports whether all pages of a range are in memory, and Prefetch of a file, to write, brings them in,
// changes no byte, and sets the time of the file's last change, as the write that follows does.
func TestPrefetchOfAFileMakesItResident(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "f")
	a := mustMapFile(t, path, 80*page)
	a.Bytes()[3*page] = 7
	if a.Kind() != File {
		t.Skipf("TMPDIR is on persistent memory (%v), whose pages are always there", a.Kind())
	}
	must.Do(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	a.Prefetch(a.Addr(), a.Len(), true)
	if !a.Resident(a.Addr(), a.Len()) {
		t.Error("the pages are not resident after Prefetch")
	}
	if st := must.Get(os.Stat(path))(t); st.ModTime().Unix() == 1 {
		t.Error("the time of the last change was not set")
	}
	if got := must.Get(os.ReadFile(path))(t); got[3*page] != 7 || bytes.Count(got, []byte{0}) != len(got)-1 {
		t.Error("Prefetch changed a byte")
	}
	f := must.Get(os.Open(path))(t)
	defer func() { must.Do(t, f.Close()) }()
	must.Do(t, errors.Join(a.Sync(a.Addr(), a.Len()), unix.Madvise(a.Bytes(), unix.MADV_DONTNEED),
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)))
	if n := resident(t, a); n == 80 {
		t.Logf("the file system keeps the pages, so that none is missing")
	} else if a.Resident(a.Addr(), a.Len()) {
		t.Errorf("%d of 80 pages are resident, and Resident says all", n)
	}
	if a.Resident(a.Addr(), a.Len()+1) || a.Resident(a.Addr()-1, 2) || a.Resident(a.Addr(), 0) {
		t.Error("a range outside the arena, or an empty one, is resident")
	}
}
