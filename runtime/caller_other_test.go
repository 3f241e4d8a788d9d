//go:build !unix

package runtime

import "testing"

// callerMapping skips the test, because this system has no mmap.
func callerMapping(t testing.TB, size int) []byte {
	t.Helper()
	t.Skip("the test needs mmap, which this system does not have")
	return nil
}
