package rpma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// ConnReq is a connection that is not requested, or not accepted, yet. Connect or Close consumes it:
// later calls return an ErrInvalid that matches runtime.ErrClosed, except Close, which then does nothing.
//
//	NewConnReq ──┐            ┌── Connect ──> a Conn
//	             ├── ConnReq ─┤
//	NextConnReq ─┘            └── Close ──> gone; the request is refused
//
// Implements: struct rpma_conn_req.
type ConnReq struct {
	p    *runtime.Pending
	conn *Conn
	// used is set by the call that consumes the request. It publishes nothing.
	used atomic.Bool
}

// NewConnReq prepares a connection to a peer's endpoint: it resolves the address and the service, which is a port or
// the name of one, and makes the queues. With cfg nil it has the defaults. It waits for the
// resolver and the device until ctx ends, and at most ConnConfig.Timeout. It sends nothing to the endpoint.
//
// Errors: ErrInvalid for an empty address or service, or an invalid configuration; ErrProvider.
//
// Implements: rpma_conn_req_new.
func (p *Peer) NewConnReq(ctx context.Context, addr, service string, cfg *ConnConfig) (*ConnReq, error) {
	const op = "rpma_conn_req_new"
	if ctx == nil || addr == "" || service == "" {
		return nil, invalid(op, "the address %q, the service %q or the context", addr, service)
	}
	c, err := cfg.validate(op)
	if err == nil {
		err = p.fits(op, c.CQSize, c.RCQSize)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	to, err := hostPort(ctx, addr, service)
	if err != nil {
		return nil, fail(op, ErrProvider, err)
	}
	pending, err := p.rt.PrepareDial(ctx, to, c.options())
	if err != nil {
		return nil, fail(op, ErrProvider, err)
	}
	logf(LevelNotice, "Requesting a connection to "+to, nil)
	return p.newConnReq(op, pending, &c)
}

// hostPort returns the address and the port of a service.
func hostPort(ctx context.Context, host, service string) (string, error) {
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// newConnReq makes the CQs and the connection. If it fails, it closes pending.
func (p *Peer) newConnReq(op string, pending *runtime.Pending, cfg *ConnConfig) (_ *ConnReq, err error) {
	r := seam.LoopReactor(pending.Loop())
	c := &Conn{
		peer: p, r: r, srq: cfg.SRQ, qpn: pending.QPNum(), shared: cfg.SharedChannel, sends: places{most: int32(cfg.SQSize)}, recvs: places{most: int32(cfg.RQSize)},
		events: make(chan Event, maxEvents), ready: make(chan struct{}), closing: make(chan struct{}), pending: pending,
	}
	var bells []*bell
	if err = p.enter(op); err != nil {
		return nil, errors.Join(err, pending.Close(background))
	}
	defer func() {
		if err != nil {
			p.leave()
			for _, b := range bells {
				b.close()
			}
			err = fail(op, ErrProvider, errors.Join(err, pending.Close(background)))
		}
	}()
	bellFor := func() (*bell, error) {
		if len(bells) == 1 && cfg.SharedChannel {
			return bells[0], nil
		}
		b, err := newBell(p, r)
		bells = append(bells, b)
		return b, err
	}
	own := cfg.SRQ == nil || cfg.SRQ.rcq == nil // receives complete to a CQ of the connection
	size := cfg.SQSize
	if own && cfg.RCQSize == 0 {
		size += cfg.RQSize
	}
	b, err := bellFor()
	if err != nil {
		return nil, err
	}
	c.cq = newCQ(b, cfg.SharedChannel, max(size, cfg.CQSize))
	if own && cfg.RCQSize > 0 {
		if b, err = bellFor(); err != nil {
			return nil, err
		}
		c.rcq = newCQ(b, cfg.SharedChannel, max(cfg.RCQSize, cfg.RQSize))
	}
	if c.eventBell, err = sys.NewEvent(); err != nil {
		return nil, err
	}
	c.bells, c.private = bells, pending.PrivateData()
	c.srq.join(c)
	return &ConnReq{p: pending, conn: c}, nil
}

// RemoteAddr returns the address of the peer.
func (q *ConnReq) RemoteAddr() netip.AddrPort { return q.p.RemoteAddr() }

// PrivateData returns the private data of the peer's request: nil if it has none, and for the request of
// this end. It may be longer than what the peer sent, padded with zeros. It is not authenticated: on an
// unprotected network, others may have changed it.
//
// Implements: rpma_conn_req_get_private_data.
func (q *ConnReq) PrivateData() []byte { return q.conn.private }

// Recv is Conn.Recv for the first messages of the peer. The device has the receive before the peer can
// send.
//
// Errors: ErrInvalid also for a nil dst; otherwise those of Conn.Recv.
//
// Implements: rpma_conn_req_recv.
func (q *ConnReq) Recv(dst *MR, off, n int, word uint64) error {
	const op = "rpma_conn_req_recv"
	switch {
	case dst == nil:
		return invalid(op, "a receive without memory")
	case q.used.Load():
		return fail(op, ErrInvalid, verbs.ErrClosed)
	}
	return q.conn.recv(op, dst, off, n, word)
}

// Connect sends the request, or accepts the peer's, with private data for the peer, and returns the
// connection, whose first event tells the outcome. It does not wait for the peer. It consumes the
// request, also with an error. The private data is copied; nil is none.
//
// On iWARP the end that accepts must not send before a message of the other has arrived (verbs.TransportIWARP).
//
// Errors: ErrInvalid for private data of no bytes that is not nil; ErrProvider for private data that is too
// long.
//
// Implements: rpma_conn_req_connect.
func (q *ConnReq) Connect(private []byte) (*Conn, error) {
	const op = "rpma_conn_req_connect"
	if q == nil || q.used.Swap(true) {
		return nil, fail(op, ErrInvalid, verbs.ErrClosed)
	}
	most := verbs.MaxPrivateConnect
	if q.conn.passive {
		most = verbs.MaxPrivateAccept
	}
	var err error
	if private != nil && len(private) == 0 {
		err = invalid(op, "private data of no bytes")
	} else if len(private) > most {
		err = fail(op, ErrProvider, fmt.Errorf("%w: %d bytes of private data, at most %d", verbs.ErrInvalid, len(private), most))
	}
	if err != nil {
		return nil, errors.Join(err, q.conn.Close(background))
	}
	q.conn.begin(bytes.Clone(private))
	return q.conn, nil
}

// Close gives the request up. A peer that waits for the answer is refused. Close is idempotent, and does
// nothing after Connect. It waits for the reactor, until ctx ends and then at most 6.5 s.
//
// Errors: those of Conn.Close.
//
// Implements: rpma_conn_req_delete.
func (q *ConnReq) Close(ctx context.Context) error {
	if ctx == nil {
		return classified("rpma_conn_req_delete", runtime.ErrNilContext)
	}
	if q.used.Swap(true) {
		return nil
	}
	return q.conn.Close(ctx)
}

// background is the context of calls that only wait for this process or its kernel.
var background = context.Background()
