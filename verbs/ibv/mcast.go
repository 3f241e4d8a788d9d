//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// mcastGroup is a multicast group that a queue pair is attached to.
type mcastGroup struct {
	gid verbs.GID
	lid uint16
}

// groups are the multicast groups of one queue pair. The kernel keeps them too, but behaves
// differently: it refuses to destroy an attached queue pair (ib_uverbs_free_qp), and on some
// devices attaches one twice.
type groups struct {
	mu       sync.Mutex // held during the C calls: attaching is rare
	attached map[mcastGroup]bool
}

// AttachMcast makes the datagrams of a group be delivered here too; attaching twice is the same
// as once.
//
// Implements: ibv_attach_mcast.
func (q *queuePair) AttachMcast(gid verbs.GID, lid uint16) error {
	g := mcastGroup{gid, lid}
	return q.use("ibv_attach_mcast", func() syscall.Errno {
		if q.init.Type != verbs.QPTUD || !gid.Addr().IsMulticast() {
			return syscall.EINVAL // IBTA 11.3.1; some libraries do not check
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

// detachAll detaches from the groups, up to the first that fails.
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
