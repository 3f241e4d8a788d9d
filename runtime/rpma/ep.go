package rpma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Endpoint listens for connection requests. No request is answered before NextConnReq has returned it
// and the program has called Connect or Close. Up to 128 requests wait (runtime.Options.Backlog of the
// runtime's Config.Conn); then a new one takes the place of one of the address that has most of them.
//
// Implements: struct rpma_ep.
type Endpoint struct {
	peer  *Peer
	l     *runtime.Listener
	event *sys.Event
	freed sync.Once // frees what the listener has left; no Close returns before
}

// Listen listens at an address of the peer's device and a service, which is a port or the name of one. The
// port 0 lets the system choose: see Addr. Listen waits for the resolver, until ctx ends, and for the
// device.
//
// Errors: ErrInvalid for an empty address or service, and after Peer.Close; ErrProvider.
//
// Implements: rpma_ep_listen.
func (p *Peer) Listen(ctx context.Context, addr, service string) (_ *Endpoint, err error) {
	const op = "rpma_ep_listen"
	if ctx == nil || addr == "" || service == "" {
		return nil, invalid(op, "the address %q, the service %q or the context", addr, service)
	}
	if err = p.enter(op); err != nil {
		return nil, err
	}
	ep := &Endpoint{peer: p}
	defer func() {
		if err != nil {
			p.leave()
		}
	}()
	at, err := hostPort(ctx, addr, service)
	if err != nil {
		return nil, fail(op, ErrProvider, err)
	}
	if ep.event, err = sys.NewEvent(); err != nil {
		return nil, fail(op, ErrProvider, err)
	}
	if ep.l, err = p.rt.ListenOptions(at, runtime.Options{Raw: true, Bare: true}); err != nil {
		return nil, fail(op, ErrProvider, err)
	}
	if err = ep.l.OnRequest(ep.event.Signal); err != nil {
		return nil, fail(op, ErrProvider, errors.Join(err, ep.l.Close(ctx)))
	}
	ep.event.Signal() // requests may wait already
	logf(LevelNotice, "Waiting for incoming connections on "+at, nil)
	return ep, nil
}

// Addr returns the address and the port of the endpoint.
func (ep *Endpoint) Addr() netip.AddrPort { return ep.l.Addr() }

// NextConnReq waits for the next connection request, and prepares a connection for it. With cfg nil the connection
// has the defaults. If ctx ends, the wait ends; a request that is being prepared is then refused.
//
// Errors: ErrInvalid for an invalid configuration, and, matching runtime.ErrClosed, when the endpoint is
// closed; ErrProvider if no connection can be prepared; the error of the context.
//
// Implements: rpma_ep_next_conn_req.
func (ep *Endpoint) NextConnReq(ctx context.Context, cfg *ConnConfig) (*ConnReq, error) {
	return ep.next(ctx, cfg, ep.l.PrepareAcceptOptions)
}

// TryNextConnReq is NextConnReq that does not wait for a request: if none waits, it returns ErrNoEvent.
//
// Implements: rpma_ep_next_conn_req on a non-blocking descriptor.
func (ep *Endpoint) TryNextConnReq(ctx context.Context, cfg *ConnConfig) (*ConnReq, error) {
	ep.event.Drain()
	q, err := ep.next(ctx, cfg, ep.l.TryPrepareAccept)
	if !errors.Is(err, ErrNoEvent) {
		ep.event.Signal() // there may be more requests
	}
	return q, err
}

func (ep *Endpoint) next(ctx context.Context, cfg *ConnConfig, accept func(context.Context, runtime.Options) (*runtime.Pending, error)) (*ConnReq, error) {
	const op = "rpma_ep_next_conn_req"
	if ctx == nil {
		return nil, classified(op, runtime.ErrNilContext)
	}
	c, err := cfg.validate(op)
	if err == nil {
		err = ep.peer.fits(op, c.CQSize, c.RCQSize)
	}
	if err != nil {
		return nil, err
	}
	pending, err := accept(ctx, c.options())
	switch {
	case errors.Is(err, runtime.ErrNoRequest):
		return nil, fail(op, ErrNoEvent, err)
	case errors.Is(err, verbs.ErrClosed):
		return nil, fail(op, ErrInvalid, err)
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fail(op, ErrProvider, err)
	}
	q, err := ep.peer.newConnReq(op, pending, &c)
	if err == nil {
		q.conn.passive = true
	}
	return q, err
}

// FD returns a descriptor that polls readable while a request may wait. It belongs to the endpoint, and Close
// closes it: the program must not read or close it. TryNextConnReq makes it unreadable when it finds no
// request.
//
// Errors: ErrNotSupported where the system has no such descriptors, and after Close.
//
// Implements: rpma_ep_get_fd.
func (ep *Endpoint) FD() (int, error) { return descriptorOf("rpma_ep_get_fd", ep.event) }

// Close stops listening. Requests that wait are refused, and calls of NextConnReq end. Requests that were
// returned, and connections, stay. Close is idempotent. It waits for the reactor, until ctx ends and then
// at most 2.5 s.
//
// Errors: ErrInvalid for a nil context. ErrProvider: if it matches runtime.ErrReactorBusy, Close may be called
// again; otherwise the resources are freed as far as the device permits.
//
// Implements: rpma_ep_shutdown.
func (ep *Endpoint) Close(ctx context.Context) error {
	const op = "rpma_ep_shutdown"
	if ctx == nil {
		return classified(op, runtime.ErrNilContext)
	}
	err := ep.l.Close(ctx)
	if !errors.Is(err, runtime.ErrReactorBusy) {
		first := false
		ep.freed.Do(func() {
			first = true
			err = errors.Join(err, ep.event.Close())
			ep.peer.leave()
		})
		if !first {
			return nil
		}
	}
	if err != nil {
		return fail(op, ErrProvider, fmt.Errorf("closing the endpoint at %v: %w", ep.Addr(), err))
	}
	return nil
}
