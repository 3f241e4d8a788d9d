package sys

// InodeID identifies a file while an Inode holds it: equal for descriptors on the same file,
// whatever its name.
type InodeID struct{ dev, ino uint64 }
