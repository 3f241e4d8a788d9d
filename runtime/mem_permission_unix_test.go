//go:build unix

package runtime

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: memory that is mapped without the permission to write is registered for reading, and refused
// with EFAULT for writing. (The bug: a peer's WRITE to it ended the process.)
func TestRegisterLooksAtThePermissionOfTheMapping(t *testing.T) {
	rt := mainBed.open(t, Config{}, 0)
	b := must.Get(syscall.Mmap(-1, 0, 8192, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	for _, access := range []verbs.AccessFlags{verbs.AccessLocalWrite, openToPeers} {
		if _, err := rt.Register(b, access); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("Register of read-only memory with access %v: %v, want EFAULT", access, err)
		}
	}
	for _, access := range []verbs.AccessFlags{0, verbs.AccessRemoteRead} {
		mustClose(t, must.Get(rt.Register(b, access))(t))
	}
	must.Do(t, rt.Invalidate(b))
	must.Do(t, syscall.Munmap(b))
}
