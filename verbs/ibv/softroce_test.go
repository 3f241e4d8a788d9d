//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: EINVAL from ibv_dereg_mr means a bound window on Soft-RoCE, where there are windows, and
// on no other device: a wrong error would make a program look for a window that is not bound.
func TestOnlySoftRoCESaysInvalidForBusy(t *testing.T) {
	r := newRig(t, Config{})
	dereg := func(want error, what string) {
		t.Helper()
		mr := must.Get(r.pd.RegMR(r.arena.Addr(), 4096, 0, verbs.AccessLocalWrite))(t)
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: "ibv_dereg_mr", Err: syscall.EINVAL})
		if err := mr.Close(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		must.Do(t, mr.Close())
	}
	dereg(verbs.ErrInvalid, "a device with no windows")
	w := must.Get(r.pd.AllocMW(verbs.MWType2))(t)
	dereg(verbs.ErrInvalid, "a device with windows")
	r.ctx.rxe = true
	dereg(verbs.ErrBusy, "Soft-RoCE with windows")
	must.Do(t, w.Close())
	dereg(verbs.ErrInvalid, "Soft-RoCE with no windows")
}

// Rule: a device whose query fails is not opened, whichever of Open's queries it is; if Soft-RoCE
// were taken for hardware, its lists would not be checked for opcodes beyond the kernel's tables.
func TestDeviceThatDoesNotSayWhatItIsIsNotOpened(t *testing.T) {
	r := newRig(t, Config{})
	const call = "ibv_query_device_ex"
	before := r.null.Calls(call)
	must.Do(t, opened(t, r.ctx.p, "null0").Close())
	asked := r.null.Calls(call) - before
	if asked == 0 {
		t.Fatal("Open asks the device for nothing")
	}
	contexts := r.null.Stats().Contexts
	for nth := uint64(1); nth <= asked; nth++ {
		must.Get(r.null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: call, Nth: nth, Count: 1, Err: syscall.EACCES}))(t)
		c, err := r.ctx.p.Open("null0")
		if op, ok := errors.AsType[*verbs.OpError](err); !ok || op.Op != "ibv_query_device" || op.Errno != syscall.EACCES {
			t.Errorf("Open, failing the %d. question: %v", nth, err)
		}
		if c != nil {
			must.Do(t, c.Close())
		}
		r.null.Clear()
	}
	if n := r.null.Stats().Contexts; n != contexts {
		t.Errorf("%d contexts are open that nobody has", n-contexts)
	}
}
