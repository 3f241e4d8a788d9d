//go:build unix

package rdmacm

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: memory that is mapped without the permission to write is refused with EFAULT, as by ibv_reg_mr.
func TestRegistrationsLookAtThePermissionOfTheMapping(t *testing.T) {
	r := newRig(t)
	_, at := r.listener(attr())
	id := r.dialer(at, attr())
	b := must.Get(syscall.Mmap(-1, 0, 8192, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	for name, reg := range map[string]func([]byte) (*MR, error){"RegMsgs": id.RegMsgs, "RegRead": id.RegRead, "RegWrite": id.RegWrite} {
		if _, err := reg(b); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s of read-only memory: %v, want EFAULT", name, err)
		}
	}
	m := must.Get(RegMR(r.dev[0].PD(), b, 0))(t)
	must.Do(t, m.Dereg())
	must.Do(t, syscall.Munmap(b))
}
