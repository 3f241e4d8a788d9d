//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// outcome is what a turn answers. EIO may be the device's end, or a completion
// queue's that was overrun; DEVICE_FATAL would tell, but comes by a channel of its
// own and may be taken later than the next turn. So the port is asked: it knows
// nothing of queues. A turn that brought completions is not called off; the next
// will be.
func (c *deviceContext) outcome(t *verbs.IOBatch, eio bool) error {
	if !eio || !c.dead() {
		return nil
	}
	for i := range t.Polls {
		if t.Polls[i].N > 0 {
			return nil
		}
	}
	return opError("turn", c.label, syscall.EIO, "%w", verbs.ErrDeviceRemoved)
}

// dead asks whether the device answers EIO to what has nothing to do with any
// object.
func (c *deviceContext) dead() bool {
	var a C.struct_vb_port_attr
	if e := syscall.Errno(C.shim_query_port(c.t, c.c, 1, &a)); e == syscall.EIO {
		c.saw(sawRemoval)
	}
	return c.removed()
}
