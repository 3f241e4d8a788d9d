package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// PlainOptions describes a connection without a connection manager. The zero value works.
type PlainOptions struct {
	// Options are the options of a raw connection. Raw need not be set, and PrivateData is ignored.
	// With KeepAlive 0 there are no keep-alive probes: a probe is a WRITE, which the peer's queue
	// pair may not permit. (The queue pairs of the ibv_*_pingpong programs do not permit WRITEs.)
	// KeepAlive and PeerTimeout do not apply to UC, which has no acknowledgments.
	Options
	// Path holds the parameters on which both ends must agree. The zero Path suits the
	// ibv_*_pingpong programs. Path.DestRdAtomic is how many READs and atomics of the peer the
	// device serves at the same time. If Path.DestRdAtomic is 0, Prepare uses the same number as
	// for connections with a connection manager.
	//
	// If Path.GIDIndex is 0, Prepare chooses the source address with verbs.ChooseGID, and Local
	// returns this address. Dial and Accept replace this source address by the local address of the
	// net.Conn, if the device has that local address, and if it is neither a loopback nor a
	// link-local address. Local still returns the address that Prepare has chosen.
	Path bootstrap.Path
	// Type is verbs.QPTRC, the default, or verbs.QPTUC. On UC, messages and WRITEs are not
	// acknowledged and may be lost silently.
	Type verbs.QPType
}

// Prepared is a raw connection that is not connected yet and needs no connection manager.
// ([Pending] is the counterpart with a connection manager.) Receives can be posted before Connect.
// Local returns the address of the queue pair, which can be written as a line of text. The programs
// at the two ends exchange these lines by any means. Each program then connects its queue pair to
// the queue pair of the other program. The peer may be any program that exchanges such lines, for
// example ibv_rc_pingpong.
//
//	        Prepare              Connect, Dial, Accept
//	(none) ─────────> prepared ───────────────────────> a Conn
//	                      │ a failed call,              │ Close
//	                      │ Close, device removal       v
//	                      └──────────────────────────> gone
//
// All methods may be called from any goroutine. The caller closes the Prepared. If Connect, Dial or
// Accept has returned a Conn, the caller closes the Conn instead.
//
// # The end of a connection without a connection manager
//
// Close does not notify the other end. On RC, the other end's next operation that needs an
// acknowledgment fails when its retries are exhausted. The other end's connection then ends with a
// *WCError. An RC end that only receives does not notice the Close, unless its Options.KeepAlive is
// set. A UC end never notices the Close. Programs must therefore signal the end themselves: with a
// last message, or by closing the TCP connection that carried the lines. In all other respects the
// Conn is like any raw connection.
type Prepared struct {
	unconnected
	own    bootstrap.Dest // the result of Local
	path   bootstrap.Path
	chosen bool // the caller of Prepare has chosen the source address (Path.GIDIndex)
}

// Prepare returns a raw connection that is not connected yet. It waits until the connection's
// reactor has created the queue pair. On a real device it makes system calls.
//
// Errors: ErrConfig; ErrClosed; ErrNoGID if the device has no source address; ErrInvalid for an
// invalid Path; ErrNotSupported if the device does not support the Type; errors of the device.
//
// Implements: ibv_create_qp, ibv_modify_qp to INIT.
func (rt *Runtime) Prepare(o PlainOptions) (*Prepared, error) {
	opts := o.Options
	opts.Raw, opts.Bare, opts.kind = true, true, o.Type
	opts.PrivateData = nil
	if opts.KeepAlive == 0 { // no probes by default: the peer's queue pair may refuse a probe and fail
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
		o.Path.DestRdAtomic = rt.depth(opts)
	}
	if o.Path.TrafficClass == 0 {
		o.Path.TrafficClass = opts.TOS
	}
	id, err := rt.place(o.Path)
	if err != nil {
		return nil, rt.asRemoved(err)
	}
	c, err := rt.newConn(nil, opts)
	if err != nil {
		return nil, err
	}
	p := &Prepared{unconnected: unconnected{c: c}, chosen: o.Path.GIDIndex != 0}
	prepared := make(chan error, 1)
	derr := c.sh.r.Do(context.Background(), func() { c.prepare(p, id, func(err error) { prepared <- err }) })
	if derr == nil {
		err = <-prepared
	}
	if derr != nil || err != nil {
		c.Abort()
		return nil, errors.Join(derr, rt.asRemoved(err))
	}
	return p, nil
}

// prepare() creates the queue pair, and then calls then with the turn held. On failure it releases
// everything by giveUp first. Only the holder of the reactor's turn (the right to run the reactor) calls
// prepare().
func (c *Conn) prepare(p *Prepared, id *nocmID, then func(error)) {
	c.state = connConnecting
	settle := func(err error) {
		if err == nil {
			err = c.checkStart() // it was not among the targets that hear of the device's removal
		}
		if err != nil {
			c.giveUp(err)
			then(err)
			return
		}
		if c.rt.cfg.stepped { // a simulation must be the same in each run, so do not use the random PSN
			id.own.PSN = id.own.QPN
		}
		c.sh.targets[id] = c
		p.own, p.path = id.own, id.path
		then(nil)
	}
	if err := c.checkStart(); err != nil {
		settle(err)
		return
	}
	c.id = id
	c.setup(settle)
}

// Local returns the address of the queue pair. Before the program sends this address to the peer,
// it should post the receives for the peer's first messages.
func (p *Prepared) Local() bootstrap.Dest { return p.own }

// Connect connects the queue pair to the peer's queue pair, and returns the connection. Connect
// first waits until the system has found the peer's hardware address, and then for the connection's
// reactor. If ctx ends during either wait, Connect fails. If the peer's queue pair does not exist,
// Connect succeeds, and the first operation that needs an acknowledgment fails. Connect may be
// called only one time. If Connect fails, it closes p.
//
// Errors: bootstrap.ErrDest for an invalid peer; ErrUnreachable if the system cannot reach the
// peer's address; ErrClosed for the second call, or after Close; ErrDeviceRemoved; errors of the
// device; the context's error.
//
// Implements: ibv_modify_qp to RTR and to RTS.
func (p *Prepared) Connect(ctx context.Context, peer bootstrap.Dest) (*Conn, error) {
	return p.connect(ctx, p.path, p.own.GID, peer)
}

// connect is Connect with the given path. The argument own is the source address that this path
// selects.
func (p *Prepared) connect(ctx context.Context, path bootstrap.Path, own verbs.GID, peer bootstrap.Dest) (*Conn, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, err
	}
	if p.used.Swap(true) {
		return nil, errUsed
	}
	c := p.c
	err = c.rt.reach(asked, path, peer)
	if err == nil {
		joined := make(chan error, 1)
		if err = c.sh.r.Do(asked, func() { c.join(path, own, peer, func(err error) { joined <- err }) }); err == nil {
			select {
			case err = <-joined:
			case <-asked:
				err = asked.Err()
			}
		} // if Do failed or ctx ended, join() may end before or after the Abort below; in both cases the connection is closed
	}
	if err == nil {
		p.returned.Store(true)
		return c, nil
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", peer, unreachable(c.rt.asRemoved(asked.Cause(ctx, err))))
}

// join() is the part of Connect that needs the turn, and then calls then with the turn held. On failure it
// releases everything by giveUp first. Holder only.
func (c *Conn) join(path bootstrap.Path, own verbs.GID, peer bootstrap.Dest, then func(error)) {
	settle := func(err error) {
		if err == nil && c.state != connConnecting {
			err = ErrConnClosed
		}
		if err == nil {
			err = c.watchPeer()
		}
		if err != nil {
			err = c.rt.asRemoved(err)
			c.giveUp(err)
			then(err)
			return
		}
		c.opened()
		then(nil)
	}
	err := c.checkStart()
	if err == nil {
		c.sh.r.Flush()       // gives the posted receives to the device before the peer can send
		err = c.checkStart() // the queue may have failed in Flush
	}
	if err != nil || c.state != connConnecting {
		settle(err)
		return
	}
	id := c.id.(*nocmID)
	c.command(lineStep, func() error { return id.join(path, own, peer) }, settle)
}

// Dial exchanges the addresses of the queue pairs over nc, as the client of the exchange, and
// connects. The peer calls Accept, or is a server of the ibv_*_pingpong family. PlainOptions.Path
// determines the source address of this end. The caller must close nc. Dial changes the deadlines
// of nc, and clears them at the end. If Dial fails, it closes p. Errors: those of Connect;
// bootstrap.ErrMalformed; errors of the network.
func (p *Prepared) Dial(ctx context.Context, nc net.Conn) (*Conn, error) {
	return p.over(ctx, nc, bootstrap.Client)
}

// Accept is the counterpart of Dial, for the end that has accepted nc: it is the server of the
// exchange.
func (p *Prepared) Accept(ctx context.Context, nc net.Conn) (*Conn, error) {
	return p.over(ctx, nc, bootstrap.Server)
}

func (p *Prepared) over(ctx context.Context, nc net.Conn, talk func(context.Context, net.Conn, []bootstrap.Dest, func([]bootstrap.Dest) error) error) (conn *Conn, err error) {
	if _, err := reactor.Unended(ctx); err != nil {
		return nil, err
	}
	path, own := p.from(nc.LocalAddr())
	err = talk(ctx, nc, []bootstrap.Dest{own}, func(peers []bootstrap.Dest) error {
		conn, err = p.connect(ctx, path, own.GID, peers[0])
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

// Prepared.from returns the path and the address of the queue pair for an exchange over a TCP
// connection with the given local address. If the device has this local address, it is the source
// address in both results. If the device does not have it, or the caller of Prepare has chosen a
// source address, the results are the path and the address of Prepare.
func (p *Prepared) from(at net.Addr) (path bootstrap.Path, own bootstrap.Dest) {
	path, own = p.path, p.own
	tcp, ok := at.(*net.TCPAddr)
	if !ok || p.chosen {
		return path, own
	}
	// Do not use a loopback address: the TCP connection leads to a proxy, or to a peer on this machine that can
	// also be reached from the address of Prepare. Do not use a link-local address, because a GID cannot name the
	// network interface to which the address belongs.
	a := tcp.AddrPort().Addr()
	if a.IsLoopback() || a.Unmap().IsLoopback() || a.IsLinkLocalUnicast() || p.c.rt.enter() != nil {
		return path, own
	}
	defer p.c.rt.leave() // Runtime.Close waits for leave before it closes the device
	if e, err := verbs.FindGID(p.c.rt.dev, path.Port, verbs.GIDFromAddr(a), true); err == nil {
		path.GIDIndex, own.GID = e.Index+1, e.GID
	}
	return path, own
}

// DialPlain dials addr, "host:port", over TCP. It then calls Prepare and Prepared.Dial. If these
// three steps together take longer than Config.ConnectTimeout, DialPlain fails with
// ErrConnectTimeout. The peer at addr is a program that calls Prepared.Accept, or a server of the
// ibv_*_pingpong family.
//
// Errors: ErrAddress; ErrUnreachable; ErrConnectTimeout; those of Prepare and Prepared.Dial.
func (rt *Runtime) DialPlain(ctx context.Context, addr string, o PlainOptions) (c *Conn, err error) {
	if _, err := reactor.Unended(ctx); err != nil {
		return nil, err
	}
	if _, _, err := splitAddr(addr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rt.cfg.ConnectTimeout, ErrConnectTimeout)
	defer cancel()
	defer func() {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		// The socket has the same deadline as ctx, but its timer may expire a little earlier. So wait for ctx.
		if <-ctx.Done(); errors.Is(context.Cause(ctx), ErrConnectTimeout) {
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
