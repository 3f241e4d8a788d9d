package sys

// InodeID names a file as long as somebody holds it: equal for descriptors on
// the same file, whatever its name.
type InodeID struct{ dev, ino uint64 }
