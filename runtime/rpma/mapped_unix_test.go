//go:build unix

package rpma

import (
	"syscall"
	"testing"
)

// mapped maps size bytes of memory, as a program does before it calls Peer.RegMR. The
// memory is unmapped at the end of the test.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	return mappedFor(t, size, true)
}

// mappedFor is mapped, with or without the permission to write.
func mappedFor(t testing.TB, size int, write bool) []byte {
	t.Helper()
	prot := syscall.PROT_READ
	if write {
		prot |= syscall.PROT_WRITE
	}
	b, err := syscall.Mmap(-1, 0, size, prot, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("unmapping the memory at the end of the test: %v", err)
		}
	})
	return b
}
