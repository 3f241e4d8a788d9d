//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// outcome returns the error of a batch. EIO may mean that the device is gone, or that a
// completion queue was overrun. DEVICE_FATAL would decide, but its channel may be read later than
// the next batch. So outcome queries the port, which does not depend on queues. A batch that
// returned completions does not fail; the next one does.
func (c *deviceContext) outcome(t *verbs.IOBatch, eio bool) error {
	if !eio || !c.dead() {
		return nil
	}
	for i := range t.Polls {
		if t.Polls[i].N > 0 {
			return nil
		}
	}
	return opError("execute", c.label, syscall.EIO, "%w", verbs.ErrDeviceRemoved)
}

// dead reports whether the device returns EIO to a call that concerns no object.
func (c *deviceContext) dead() bool {
	var a C.struct_vb_port_attr
	if e := syscall.Errno(C.shim_query_port(c.t, c.c, 1, &a)); e == syscall.EIO {
		c.saw(sawRemoval)
	}
	return c.removed()
}
