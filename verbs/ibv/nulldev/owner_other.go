//go:build !linux

package nulldev

import "io/fs"

// ownFolder is not needed: the null device is for Linux.
func ownFolder(fs.FileInfo) bool { return false }
