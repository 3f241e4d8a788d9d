//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// mcastGroup is a multicast group as a queue pair is attached to it.
type mcastGroup struct {
	gid verbs.GID
	lid uint16
}

// groups are those of one queue pair. The kernel remembers them too, but answers
// otherwise: it refuses to destroy a queue pair that is attached
// (ib_uverbs_free_qp), and lets one be attached twice on some devices.
type groups struct {
	mu       sync.Mutex // held over the calls of C: attaching is rare
	attached map[mcastGroup]bool
}

// AttachMcast delivers the datagrams of a group here too; attaching twice is
// once.
//
// Implements: ibv_attach_mcast.
func (q *queuePair) AttachMcast(gid verbs.GID, lid uint16) error {
	g := mcastGroup{gid, lid}
	return q.use("ibv_attach_mcast", func() syscall.Errno {
		if q.init.Type != verbs.QPTUD || !gid.Addr().IsMulticast() {
			return syscall.EINVAL // IBTA 11.3.1; not every library looks
		}
		q.groups.mu.Lock()
		defer q.groups.mu.Unlock()
		if q.groups.attached[g] {
			return 0
		}
		e := syscall.Errno(C.shim_attach(q.ctx.t, q.c, gidToC(&g.gid), C.uint16_t(lid)))
		if e == 0 {
			if q.groups.attached == nil {
				q.groups.attached = map[mcastGroup]bool{}
			}
			q.groups.attached[g] = true
		}
		return e
	})
}

// DetachMcast ends it; [verbs.ErrInvalid] when it was not attached.
//
// Implements: ibv_detach_mcast.
func (q *queuePair) DetachMcast(gid verbs.GID, lid uint16) error {
	g := mcastGroup{gid, lid}
	return q.use("ibv_detach_mcast", func() syscall.Errno {
		q.groups.mu.Lock()
		defer q.groups.mu.Unlock()
		if !q.groups.attached[g] {
			return syscall.EINVAL
		}
		return q.detach(g)
	})
}

// detach detaches from one group. Under groups.mu.
func (q *queuePair) detach(g mcastGroup) syscall.Errno {
	e := syscall.Errno(C.shim_detach(q.ctx.t, q.c, gidToC(&g.gid), C.uint16_t(g.lid)))
	if e == 0 {
		delete(q.groups.attached, g)
	}
	return e
}

// detachAll detaches from every group, up to the first that fails.
func (q *queuePair) detachAll() syscall.Errno {
	q.groups.mu.Lock()
	defer q.groups.mu.Unlock()
	for g := range q.groups.attached {
		if e := q.detach(g); e != 0 {
			return e
		}
	}
	return 0
}
