//go:build !unix

package rpma

import "testing"

// mapped skips the test, because this system has no mmap.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	t.Skip("the test needs mmap, which this system does not have")
	return nil
}

// mappedFor skips the test, too.
func mappedFor(t testing.TB, size int, write bool) []byte { return mapped(t, size) }
