//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

const windowCaps = verbs.CapMemWindow | verbs.CapMemWindow2A | verbs.CapMemWindow2B

// dropWindows removes the memory windows from d if the library has none: the kernel's driver may report them
// all the same (Linux bnxt_re/ib_verbs.c, bnxt_re_query_device; providers/bnxt_re has no alloc_mw). The first
// call of a context makes a window to find out.
func (c *deviceContext) dropWindows(d *verbs.DeviceAttr) error {
	if d.Caps&windowCaps == 0 {
		return nil
	}
	missing, err := c.lacksWindows(d.Caps)
	if missing {
		d.Caps &^= windowCaps
		d.MaxMW = 0
	}
	return err
}

func (c *deviceContext) lacksWindows(caps verbs.DeviceCaps) (bool, error) {
	l := &c.probed
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.windows {
		return l.noWindows, nil
	}
	kind := C.vb_enum(C.VB_MW_TYPE_2)
	if caps&(verbs.CapMemWindow2A|verbs.CapMemWindow2B) == 0 {
		kind = C.VB_MW_TYPE_1
	}
	var e syscall.Errno
	err := c.probe(func(p *prober) {
		w, err := C.shim_alloc_mw(p.pd.c, kind)
		if w == nil {
			e = errnoOf(err)
			return
		}
		p.destroy(func() C.int { return C.shim_dealloc_mw(w) })
	})
	missing := errors.Is(sentinel(e), verbs.ErrNotSupported)
	if err == nil && (e == 0 || missing) { // after another error the next call tries again
		l.windows, l.noWindows = true, missing
	}
	return missing, err
}
