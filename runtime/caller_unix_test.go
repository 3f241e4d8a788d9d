//go:build unix

package runtime

import (
	"syscall"
	"testing"
)

// callerMapping returns size bytes of memory that the test maps itself, like a user of Register.
// The end of the test unmaps it.
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
