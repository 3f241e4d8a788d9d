//go:build unix

package mem

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
)

// pages maps n pages as a program does, of a file of fileLen bytes unless that is negative. They are
// unmapped at the end of the test.
func pages(t testing.TB, n, prot, fileLen int) []byte {
	t.Helper()
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANON
	if fileLen >= 0 {
		f := must.Get(os.Create(filepath.Join(t.TempDir(), "file")))(t)
		must.Do(t, f.Truncate(int64(fileLen)))
		defer f.Close()
		fd, flags = int(f.Fd()), unix.MAP_SHARED
	}
	b := must.Get(unix.Mmap(fd, 0, n*os.Getpagesize(), prot, flags))(t)
	t.Cleanup(func() { must.Do(t, unix.Munmap(b)) })
	return b
}

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// Rule: a copy to or from memory that is not there returns the address at which it stopped, and leaves
// the goroutine as it was. (The bug: it ended the process.)
func TestCopyReturnsFaults(t *testing.T) {
	page := os.Getpagesize()
	gone, short := pages(t, 3, readWrite, -1), pages(t, 3, readWrite, page)
	must.Do(t, unix.Mprotect(gone[page:2*page], unix.PROT_NONE))
	fixed := pages(t, 3, unix.PROT_READ, -1)
	own := make([]byte, 3*page)
	for _, c := range []struct {
		name     string
		dst, src []byte
		bad      []byte // nil: the copy succeeds
	}{
		{"to memory without permission", gone, own[:page+8], gone[page : 2*page]},
		{"from memory without permission", own, gone[8 : page+8], gone[page : 2*page]},
		{"to memory without the permission to write", fixed, own[:8], fixed[:8]},
		{"to memory behind a file's end", short[page:], own[:8], short[page : page+8]},
		{"from memory behind a file's end", own, short, short[page:]},
		{"to its own memory, overlapping", gone[8:page], gone[:100], nil},
		{"to its own memory without permission, overlapping", gone[page+8:], gone[page : page+1000], gone[page : 2*page]},
		{"of nothing", gone[page:], nil, nil},
	} {
		for _, was := range []bool{false, true} {
			debug.SetPanicOnFault(was)
			f, ok := Copy(c.dst, c.src)
			if now := debug.SetPanicOnFault(false); now != was {
				t.Errorf("%s: the goroutine's mode is %t, want %t as before", c.name, now, was)
			}
			if ok != (c.bad == nil) || !ok && !f.In(c.bad) {
				t.Errorf("%s: fault at %#x, %t", c.name, uint64(f), ok)
			}
		}
	}
	for i := range own {
		own[i] = byte(i)
	}
	if _, ok := Copy(own[3:], own[:2000]); !ok || !bytes.Equal(own[3:259], own[259:515]) || own[4] != 1 {
		t.Errorf("an overlapping copy moved %v", own[:16])
	}
	if n := testing.AllocsPerRun(100, func() { Copy(gone, own[:8]) }); n != 0 {
		t.Errorf("a copy allocates %v times", n)
	}
}

// Rule: a panic that is no fault is the caller's.
func TestTryPassesOtherPanicsOn(t *testing.T) {
	defer func() {
		if v := recover(); v != "mine" {
			t.Errorf("recovered %v, want the panic of the function", v)
		}
		if debug.SetPanicOnFault(false) {
			t.Error("the goroutine's mode stays changed")
		}
	}()
	Try(func() { panic("mine") })
}

// Rule: memory is refused, with EFAULT, if it is mapped without a permission that is wanted, or has
// pages behind the end of its file, as ibv_reg_mr refuses it. (The bug: only the permission to read
// was looked at.)
func TestCheckRefusesWhatADeviceCannotUse(t *testing.T) {
	page := os.Getpagesize()
	_, lists := MemlockLimit() // the Linux build: others do not know the permissions without access
	half := pages(t, 4, readWrite, -1)
	must.Do(t, unix.Mprotect(half[2*page:], unix.PROT_READ))
	for _, c := range []struct {
		name           string
		b              []byte
		write, present bool
		want           error
	}{
		{"anonymous", pages(t, 2, readWrite, -1), true, true, nil},
		{"anonymous, read-only, to read", pages(t, 2, unix.PROT_READ, -1), false, true, nil},
		{"anonymous, read-only, to write", pages(t, 2, unix.PROT_READ, -1), true, true, ErrNotWritable},
		{"read-only in part", half[:3*page], true, true, ErrNotWritable},
		{"beside read-only", half[:2*page], true, true, nil},
		{"a file", pages(t, 2, readWrite, 2*page), true, true, nil},
		{"a file, its last page not full", pages(t, 2, readWrite, page+1), true, true, nil},
		{"a file, read-only, to read", pages(t, 2, unix.PROT_READ, 2*page), false, true, nil},
		{"a file, read-only, to write", pages(t, 2, unix.PROT_READ, 2*page), true, true, ErrNotWritable},
		{"a file, behind its end", pages(t, 2, readWrite, page), false, true, ErrNotMapped},
		{"a file, behind its end, on demand", pages(t, 2, readWrite, page), true, false, nil},
		{"a file, before its end", pages(t, 2, readWrite, page)[:page], true, true, nil},
	} {
		a := must.Get(Adopt(c.b))(t)
		err := a.Check(a.Addr(), a.Len(), c.write, c.present)
		if !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		must.Do(t, a.Unmap())
	}
	a := must.Get(Adopt(half))(t)
	if err := a.Check(a.Addr()+uint64(page), page, true, true); err != nil {
		t.Errorf("the writable part of memory: %v", err)
	}
	if err := a.Check(a.Addr(), a.Len(), true, false); lists && !errors.Is(err, ErrNotWritable) {
		t.Errorf("memory on demand without the permission to write: %v, want ErrNotWritable", err)
	}
	must.Do(t, a.Unmap())
	m := mustMap(t, page, Options{})
	if err := m.Check(m.Addr(), page, true, true); err != nil || m.MayFault() || !a.MayFault() {
		t.Errorf("own memory: %v, may fault: %t; want no error, false", err, m.MayFault())
	}
	must.Do(t, m.Unmap())
}

// BenchmarkCopy is a copy of 8 bytes, plain and by Copy.
func BenchmarkCopy(b *testing.B) {
	own, to := make([]byte, 8), pages(b, 1, readWrite, -1)
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			copy(to, own)
		}
	})
	b.Run("Copy", func(b *testing.B) {
		for b.Loop() {
			Copy(to, own)
		}
	})
}
