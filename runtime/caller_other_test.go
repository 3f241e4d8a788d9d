//go:build !unix

package runtime

import "testing"

// callerMapping skips the test, because this system has no mmap.
func callerMapping(t testing.TB, size int) []byte {
	t.Helper()
	t.Skip("no mmap on this system")
	return nil
}
