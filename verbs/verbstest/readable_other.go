//go:build !linux || portable

package verbstest

// fdReadable cannot ask here.
func fdReadable(int) (readable, ok bool) { return false, false }
