package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// PlainOptions describes a connection without a connection manager. The zero value works.
type PlainOptions struct {
	// Options are those of any raw connection: Raw need not be set, and PrivateData
	// is ignored. Here KeepAlive 0 disables the probes. They are WRITEs, which not every
	// peer's queue pair permits; those of the ibv_*_pingpong programs do not. UC has no
	// acknowledgements, so KeepAlive and PeerTimeout do not apply.
	Options
	// Path holds the parameters that both ends must agree on; its zero value
	// suits the ibv_*_pingpong programs. DestRdAtomic 0 means as many as the
	// device supports, up to the limit that other connections use.
	Path bootstrap.Path
	// Type is verbs.QPTRC, the default, or verbs.QPTUC: unacknowledged
	// messages and writes, which may be lost silently.
	Type verbs.QPType
}

// Prepared is a raw connection that its owner connects without a connection manager. (Pending is
// one that uses the connection manager.) Receives can be posted to its queue pair at once. Local
// returns its address, a line of text. The two programs exchange these lines by any means. The
// peer may be any program that exchanges such lines, for example ibv_rc_pingpong.
//
//	        Prepare              Connect, Dial, Accept
//	(none) ─────────> prepared ───────────────────────> a Conn
//	                      │ they failed, the device is gone
//	                      │ Close                       v
//	                      └──────────────────────────> gone
//
// All methods may be called from any goroutine. The caller closes the
// Prepared, or, once connected, the Conn.
//
// # The end of a connection without a manager
//
// Neither end is notified of the other's Close. On RC the next operation that needs an
// acknowledgement fails when its retries are exhausted, and ends the connection with a *WCError;
// an end that only receives notices nothing, unless Options.KeepAlive is set. On UC the loss is
// never noticed. Programs must therefore signal the end themselves: with a last message, or by
// closing the TCP connection that carried the lines. Everything else is as with any connection.
type Prepared struct {
	unconnected
	own  bootstrap.Dest
	path bootstrap.Path
}

// Prepare returns a raw connection that is not connected yet. It waits
// for a turn of a reactor, and enters the kernel on a real device.
//
// Errors: ErrConfig; ErrClosed; ErrNoGID if the device has no source address;
// ErrInvalid for an invalid Path; ErrNotSupported if the device does not support
// the Type; the device's.
//
// Implements: ibv_create_qp, ibv_modify_qp to INIT.
func (rt *Runtime) Prepare(o PlainOptions) (*Prepared, error) {
	opts := o.Options
	opts.Raw, opts.Bare, opts.kind = true, true, o.Type
	opts.PrivateData = nil
	if opts.KeepAlive == 0 { // the peer's queue pair may refuse the probe and fail
		opts.KeepAlive = -1
	}
	opts, err := rt.inherit(opts)
	if err != nil {
		return nil, err
	}
	if o.Type != 0 && o.Type != verbs.QPTRC && o.Type != verbs.QPTUC {
		return nil, fmt.Errorf("%w: PlainOptions.Type is %v, want RC or UC", ErrConfig, o.Type)
	}
	if o.Path.DestRdAtomic == 0 {
		o.Path.DestRdAtomic = rt.reads
	}
	id, err := rt.place(o.Path)
	if err != nil {
		return nil, rt.asRemoved(err)
	}
	c, err := rt.newConn(opts)
	if err != nil {
		return nil, err
	}
	p := &Prepared{unconnected: unconnected{c: c}}
	if derr := c.sh.r.Do(context.Background(), func() { err = c.prepare(p, id) }); derr != nil || err != nil {
		c.Abort()
		return nil, errors.Join(derr, rt.asRemoved(err))
	}
	return p, nil
}

// prepare creates the queue pair. On failure giveUp releases everything. Holder only.
func (c *Conn) prepare(p *Prepared, id *nocmID) error {
	c.state = connConnecting
	err := c.checkStart()
	if err == nil {
		c.id = id
		err = c.setup()
	}
	if err != nil {
		c.giveUp(err)
		return err
	}
	if c.rt.cfg.stepped { // not random: the seed must reproduce the simulation
		id.own.PSN = id.own.QPN
	}
	c.sh.targets[id] = c
	p.own, p.path = id.own, id.path
	return nil
}

// Local returns the address of the queue pair. Send it to the peer once
// receives are posted for the peer's first messages.
func (p *Prepared) Local() bootstrap.Dest { return p.own }

// Connect connects the queue pair to the peer's, and p becomes the Conn. An absent
// peer is detected only by the first operation that needs an acknowledgement. On any
// failure p is closed. Connect may be called once. It waits for the system to find the
// peer's hardware address, and then for a turn of a reactor; ctx ends both waits.
//
// Errors: bootstrap.ErrDest for an invalid peer; ErrUnreachable without a route to it;
// ErrClosed for the second call, or after Close; ErrDeviceRemoved; the device's; the context's.
//
// Implements: ibv_modify_qp to RTR and to RTS.
func (p *Prepared) Connect(ctx context.Context, peer bootstrap.Dest) (*Conn, error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	if p.used.Swap(true) {
		return nil, errUsed
	}
	c := p.c
	err := c.rt.reach(ctx, p.path, peer)
	if err == nil {
		var joined error // set under the turn, possibly after ctx has ended
		if err = c.sh.r.Do(ctx, func() { joined = c.join(peer) }); err == nil {
			err = joined
		} // else join may still run, before or after Abort, which closes the connection
	}
	if err == nil {
		p.returned.Store(true)
		return c, nil
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", peer, unreachable(c.rt.asRemoved(err)))
}

// join implements Connect under the turn. On failure giveUp releases
// everything and the caller gets the error. Holder only.
func (c *Conn) join(peer bootstrap.Dest) error {
	err := c.checkStart()
	if err == nil {
		c.sh.r.Flush()       // receives are at the device before the peer can send
		err = c.checkStart() // Flush may have found a failed queue
	}
	if err == nil && c.state != connConnecting {
		err = ErrConnClosed
	}
	if err == nil {
		err = c.id.(*nocmID).join(peer)
	}
	if err == nil {
		err = c.watchPeer()
	}
	if err != nil {
		err = c.rt.asRemoved(err)
		c.giveUp(err)
		return err
	}
	c.opened()
	return nil
}

// Dial exchanges addresses over nc, with a peer that calls Accept or with a server of the
// ibv_*_pingpong family, and connects. nc stays the caller's; Dial sets its deadlines. On
// any failure p is closed. Errors: those of Connect; bootstrap.ErrMalformed; the network's.
func (p *Prepared) Dial(ctx context.Context, nc net.Conn) (*Conn, error) {
	return p.over(ctx, nc, bootstrap.Client)
}

// Accept is the other side of Dial, for the end that accepted nc.
func (p *Prepared) Accept(ctx context.Context, nc net.Conn) (*Conn, error) {
	return p.over(ctx, nc, bootstrap.Server)
}

func (p *Prepared) over(ctx context.Context, nc net.Conn, talk func(context.Context, net.Conn, []bootstrap.Dest, func([]bootstrap.Dest) error) error) (conn *Conn, err error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	err = talk(ctx, nc, []bootstrap.Dest{p.own}, func(peers []bootstrap.Dest) error {
		conn, err = p.Connect(ctx, peers[0])
		return err
	})
	if err == nil {
		return conn, nil
	}
	if conn != nil {
		conn.Abort()
	} else if !p.used.Swap(true) {
		p.c.Abort()
	}
	return nil, err
}

// DialPlain dials addr, "host:port", over TCP, then calls Prepare and
// Dial, all within Config.ConnectTimeout. The peer at addr is a program that
// calls Prepared.Accept, or a server of the ibv_*_pingpong family.
func (rt *Runtime) DialPlain(ctx context.Context, addr string, o PlainOptions) (c *Conn, err error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rt.cfg.ConnectTimeout, ErrConnectTimeout)
	defer cancel()
	defer func() {
		if !errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if <-ctx.Done(); errors.Is(context.Cause(ctx), ErrConnectTimeout) { // the deadline of nc is the same, and may expire before ctx does
			err = fmt.Errorf("%w: %s, longer than %v (Config.ConnectTimeout): %v", ErrConnectTimeout, addr, rt.cfg.ConnectTimeout, err) //nolint:errorlint // err is DeadlineExceeded, and the caller's context has not ended
		}
	}()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer nc.Close()
	p, err := rt.Prepare(o)
	if err != nil {
		return nil, err
	}
	return p.Dial(ctx, nc)
}
