package rdmacm

import (
	"context"
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// ResolveAddrInfo begins what GetAddrInfo does, for an identifier: it does not wait for the resolver. Event
// ADDRINFO_RESOLVED follows, and then QueryAddrInfo returns the results; or ADDRINFO_ERROR. A synchronous
// identifier waits for the event. The resolver stops when ctx ends. The identifier can be destroyed
// meanwhile: then no event follows.
//
// Not proven on a device: the kernel resolves names of InfiniBand services, and this function asks the
// resolver of the system, as GetAddrInfo does.
//
// Implements: rdma_resolve_addrinfo.
func (id *ID) ResolveAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) error {
	if id == nil {
		return errNil("rdma_resolve_addrinfo")
	}
	const op = "rdma_resolve_addrinfo"
	if ctx == nil {
		return ErrNilContext
	}
	h := AddrInfo{PortSpace: id.ps}
	if hints != nil {
		h = *hints
	}
	if h.PortSpace == 0 {
		h.PortSpace = id.ps
	}
	if h.PortSpace != id.ps {
		return failure(op, id, syscall.EINVAL, verbs.ErrInvalid)
	}
	return id.await(ctx, op, func() error {
		go id.resolve(ctx, node, service, &h)
		return nil
	}, verbs.CMAddrInfoResolved)
}

// resolve asks the resolver and reports the result.
func (id *ID) resolve(ctx context.Context, node, service string, hints *AddrInfo) {
	infos, err := GetAddrInfo(ctx, node, service, hints)
	t, status := verbs.CMAddrInfoResolved, 0
	if err != nil {
		t, status = verbs.CMAddrInfoError, -int(syscall.ENOENT)
		if e, ok := errors.AsType[*verbs.OpError](err); ok && errors.Is(err, verbs.ErrInvalid) {
			status = -int(e.Errno)
		}
	}
	id.mu.Lock()
	id.infos = infos
	id.mu.Unlock()
	_ = id.putEvent("rdma_resolve_addrinfo", t, status, err) // fails when the identifier or its channel is destroyed
}

// QueryAddrInfo returns the results of ResolveAddrInfo, the preferred one first. Before ADDRINFO_RESOLVED it
// fails with ENOENT. It does not block.
//
// Implements: rdma_query_addrinfo.
func (id *ID) QueryAddrInfo() ([]AddrInfo, error) {
	if id == nil {
		return nil, errNil("rdma_query_addrinfo")
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.infos == nil {
		return nil, failure("rdma_query_addrinfo", id, syscall.ENOENT, nil)
	}
	return append([]AddrInfo(nil), id.infos...), nil
}
