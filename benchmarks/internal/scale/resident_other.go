//go:build !linux

package scale

// resident is not available here.
func resident() (int64, bool) { return 0, false }
