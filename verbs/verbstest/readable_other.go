//go:build !linux || portable

package verbstest

// fdReadable is not supported here.
func fdReadable(int) (readable, ok bool) { return false, false }
