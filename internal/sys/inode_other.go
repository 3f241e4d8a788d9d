//go:build !linux || portable

package sys

import "errors"

// Inode holds the file behind a descriptor; not supported here.
type Inode struct{ id InodeID }

// HoldInode returns errors.ErrUnsupported.
func HoldInode(int) (*Inode, error) { return nil, errors.ErrUnsupported }

// ID returns the identity of the file; equal for descriptors on the same file.
func (i *Inode) ID() InodeID { return i.id }

// Close releases the file.
func (i *Inode) Close() error { return nil }
