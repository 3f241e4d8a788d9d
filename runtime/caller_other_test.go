//go:build !unix

package runtime

import "testing"

// callerMapping returns memory that the test mapped itself.
func callerMapping(t testing.TB, size int) []byte {
	t.Helper()
	t.Skip("no mmap on this system")
	return nil
}
