//go:build linux && !portable

package sys

import "golang.org/x/sys/unix"

// Inode holds the file behind a descriptor, so that its inode number is not reused for another
// file.
type Inode struct {
	id InodeID
	fd int // our own descriptor on it
}

// HoldInode holds the file that fd is open on; fd itself stays the caller's. The caller must
// close the result. It may block as long as the file system does.
//
// Implements: fcntl(2) with F_DUPFD_CLOEXEC, fstat(2).
func HoldInode(fd int) (*Inode, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		_ = unix.Close(own) // nothing was written to it
		return nil, err
	}
	return &Inode{id: InodeID{dev: st.Dev, ino: st.Ino}, fd: own}, nil
}

// ID returns the identity of the file; equal for descriptors on the same file.
func (i *Inode) ID() InodeID { return i.id }

// Close releases the file. Call it once.
func (i *Inode) Close() error { return unix.Close(i.fd) }
