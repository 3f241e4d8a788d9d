//go:build unix

package runtime

import (
	"syscall"
	"testing"
)

// callerMapping maps size bytes of memory, as a user of Register does. The memory is unmapped at
// the end of the test.
func callerMapping(t testing.TB, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("the caller cannot unmap its memory: %v", err)
		}
	})
	return b
}
