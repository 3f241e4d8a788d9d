//go:build !linux || portable

package sys

import "errors"

// Inode keeps the file behind a descriptor; there are none here.
type Inode struct{ id InodeID }

// HoldInode answers errors.ErrUnsupported.
func HoldInode(int) (*Inode, error) { return nil, errors.ErrUnsupported }

// ID is equal for descriptors on the same file.
func (i *Inode) ID() InodeID { return i.id }

// Close lets go of the file.
func (i *Inode) Close() error { return nil }
