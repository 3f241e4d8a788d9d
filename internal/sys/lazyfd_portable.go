//go:build !linux || portable

package sys

// lazyFD is no descriptor.
type lazyFD struct{}

func (*lazyFD) open() int    { return -1 }
func (*lazyFD) raise()       {}
func (*lazyFD) lower()       {}
func (*lazyFD) close() error { return nil }
