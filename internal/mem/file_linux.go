//go:build linux && !portable

package mem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

const fileSupported = true

// filePerm is the mode of a file made by MapFile: accessible to the owner only, like memory.
const filePerm = 0o600

func osMapFile(path string, size int) (m mapping, err error) {
	n, err := roundUp(size, os.Getpagesize())
	if err != nil {
		return m, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return m, fmt.Errorf("mem: map of a file: %w", err)
	}
	defer func() {
		// The mapping keeps the file open.
		if e := f.Close(); e != nil && err == nil {
			err = errors.Join(fmt.Errorf("mem: map of %s: %w", path, e), osUnmap(m.base, m.size))
		}
	}()
	if err := extend(f, int64(n)); err != nil {
		return m, fmt.Errorf("mem: map of %d bytes of %s: %w", n, path, err)
	}
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return m, fmt.Errorf("mem: map of %d bytes of %s: %w", n, path, err)
	}
	return mapping{base: p, size: n}, nil
}

// extend makes f at least n bytes long, with space reserved for them, and syncs size and name to
// the disk. Without the space a write to a page would kill the process later, at an unexpected
// place.
func extend(f *os.File, n int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%v is no regular file", st.Mode())
	}
	err = uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, n) }) // grows, never shrinks; fills holes
	if errors.Is(err, unix.EOPNOTSUPP) {                                              // the file system cannot reserve
		err = nil
		if st.Size() < n {
			err = f.Truncate(n)
		}
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // the file system's directories need no sync
	}
	return errors.Join(err, dir.Close())
}

func osSync(base unsafe.Pointer, off, n uintptr) error {
	pages := pageRange(base, off, n, uintptr(os.Getpagesize()))
	return uninterrupted(func() error { return unix.Msync(pages, unix.MS_SYNC) })
}

// uninterrupted repeats a call that a signal interrupted. The Go runtime sends its threads
// signals, and some file systems do not restart: fallocate on tmpfs (mm/shmem.c,
// shmem_fallocate).
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
