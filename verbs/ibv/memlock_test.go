//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: when memory is short, the error names the limit on locked memory for a registration that
// alone exceeds it, and not for an on-demand one, which locks nothing.
func TestMemlockIsNotBlamedForMemoryOnDemand(t *testing.T) {
	r := newRig(t, Config{})
	arena := must.Get(mem.Map(1<<20, mem.Options{}))(t)
	defer func() { must.Do(t, arena.Unmap()) }()
	limit(t, 1<<16)
	for access, want := range map[verbs.AccessFlags]bool{verbs.AccessLocalWrite: true, verbs.AccessLocalWrite | verbs.AccessOnDemand: false} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_reg_mr_iova2", Count: 1, Err: syscall.ENOMEM})
		_, err := r.pd.RegMR(arena.Addr(), uint64(arena.Len()), arena.Addr(), access)
		if !errors.Is(err, syscall.ENOMEM) || errors.Is(err, verbs.ErrMemlock) != want {
			t.Errorf("access %v: %v; want ENOMEM, the limit named: %t", access, err, want)
		}
	}
}
