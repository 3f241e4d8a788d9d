//go:build !unix

package runtime

import "testing"

// callerMapping is memory that the caller of a Memory mapped.
func callerMapping(t testing.TB, size int) []byte {
	t.Helper()
	t.Skip("no mmap on this system")
	return nil
}
