//go:build linux && !portable

package mem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/mem/writeback"
)

const fileSupported = true

// filePerm is the mode of a file made by MapFile: accessible to the owner only, like memory.
const filePerm = 0o600

func osMapFile(path string, size int) (m mapping, err error) {
	f, created, err := openFile(path)
	if err != nil {
		return m, fmt.Errorf("mem: map of a file: %w", err)
	}
	defer func() {
		if err != nil && created {
			err = errors.Join(err, os.Remove(f.Name()))
		} else if created {
			m.created = f.Name()
		}
	}()
	defer func() {
		if err == nil && m.kind == File && onDisk(f) {
			m.file, m.disk = f, diskOf(f)
			return
		}
		// The mapping keeps the file open.
		if e := f.Close(); e != nil && err == nil {
			err = errors.Join(fmt.Errorf("mem: map of %s: %w", path, e), osUnmap(m.base, m.size))
		}
	}()
	st, err := f.Stat()
	if err == nil {
		switch {
		case st.Mode().IsRegular():
			m, err = mapRegular(f, st.Size(), size)
		case st.Mode()&os.ModeCharDevice != 0:
			m, err = mapDevice(f, size)
		default:
			err = fmt.Errorf("%v is no regular file and no devdax device", st.Mode())
		}
	}
	if err != nil {
		return m, fmt.Errorf("mem: map of %d bytes of %s: %w", size, path, err)
	}
	return m, nil
}

// onDisk reports whether f is on a file system with a disk, as far as is known.
func onDisk(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type != unix.TMPFS_MAGIC
}

// diskOf returns the number of the device that f is on.
func diskOf(f *os.File) uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return uint64(st.Dev) //nolint:unconvert // 32 bits on some systems
}

// openFile opens the file at path, and reports whether it has created it. The file has its own name, and
// not that of a symbolic link to it, so that the name's folder can be synced and the file removed.
func openFile(path string) (f *os.File, created bool, err error) {
	if path, err = resolve(path); err != nil {
		return nil, false, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm); err == nil {
		return f, true, nil
	}
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	return f, false, err
}

// maxLinks is how many symbolic links Linux follows in one path (MAXSYMLINKS).
const maxLinks = 40

// resolve follows the symbolic links at path. The last link may lead to a file that does not exist.
func resolve(path string) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // no link: a file of another kind, or none
		}
		if !filepath.IsAbs(to) {
			to = folder(path) + to
		}
		path = to
	}
	return "", &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// folder returns the part of path before its last name, with the slash. It does not shorten it: a part may
// be a symbolic link.
func folder(path string) string { return path[:strings.LastIndexByte(path, '/')+1] }

// mapRegular maps a regular file of the given length.
func mapRegular(f *os.File, length int64, size int) (m mapping, err error) {
	if m.size, err = roundUp(size, os.Getpagesize()); err != nil {
		return m, err
	}
	if err := extend(f, length, int64(m.size)); err != nil {
		return m, err
	}
	// Without an instruction only msync makes a file on persistent memory persistent. msync also
	// works for a mapping with MAP_SYNC, which would then have no use.
	if m.instruction = writeback.Best(); m.instruction != writeback.None {
		m.base, err = mapShared(f, m.size, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
		if err == nil {
			m.kind = FSDAX
			return m, nil
		}
		// EOPNOTSUPP: not on persistent memory. EINVAL: a kernel before 4.15.
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			return m, err
		}
		m.instruction = writeback.None
	}
	m.kind = File
	m.base, err = mapShared(f, m.size, unix.MAP_SHARED)
	return m, err
}

func mapShared(f *os.File, n, flags int) (unsafe.Pointer, error) {
	return unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, flags)
}

// extend makes f, of the given length, at least n bytes long, with space reserved for them, and syncs size and name to
// the disk. Without the space a write to a page would kill the process later, at an unexpected
// place.
func extend(f *os.File, length, n int64) error {
	err := uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, n) }) // grows, never shrinks; fills holes
	if errors.Is(err, unix.EOPNOTSUPP) {                                               // the file system cannot reserve
		err = nil
		if length < n {
			err = f.Truncate(n)
		}
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(folder(f.Name()) + ".")
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
