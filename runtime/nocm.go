package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// PlainOptions describe a connection without a connection manager. The zero value
// works.
type PlainOptions struct {
	// Options as of any raw connection: Raw need not be set, and PrivateData goes
	// nowhere. KeepAlive 0 is never: it needs a peer whose queue pair takes WRITEs,
	// which those of the ibv_*_pingpong programs do not. On UC there is none, nor
	// a PeerTimeout: nothing is answered.
	Options
	// Path is what both ends must agree on; its zero value suits the
	// ibv_*_pingpong programs. DestRdAtomic 0 is as many as the device has, up to
	// those of other connections.
	Path bootstrap.Path
	// Type is verbs.QPTRC, the default, or verbs.QPTUC: messages and writes without
	// acknowledgement, that may be lost without a word.
	Type verbs.QPType
}

// Prepared is a raw connection that its owner connects (Pending is one with a connection
// manager): a queue pair that can have
// receives posted, and a line that says where it is, to be carried to the peer by
// whatever means there are, and the peer's line back. Nothing of it needs rdma_cm,
// and the peer may be any program that can do the same, ibv_rc_pingpong for one.
//
//	        Prepare              Connect, Dial, Accept
//	(none) ─────────> prepared ───────────────────────> a Conn
//	                      │ they failed, the device is gone
//	                      │ Close                       v
//	                      └──────────────────────────> gone
//
// All methods may be called from any goroutine. The caller closes it, unless it has
// become a Conn: then he closes that.
//
// # The end of a connection without a manager
//
// The peer is not told of a Close, and we are not of the peer's. On RC the next
// operation that wants an answer fails when its retries are used up, and ends the
// connection with a *WCError; whoever only receives notices nothing, unless
// Options.KeepAlive is set. On UC nothing is noticed ever. So end
// in your own words: a last message, or the end of the TCP connection that carried
// the lines. Everything else is as with any connection.
type Prepared struct {
	unconnected
	own  bootstrap.Dest
	path bootstrap.Path
}

// Prepare makes a raw connection that is connected to nobody. It blocks on a
// reactor and enters the kernel on a real device.
//
// Errors: ErrConfig; ErrClosed; ErrNoGID when the device has no address to
// send from; ErrInvalid for a Path that cannot be; ErrNotSupported for a
// Type; the device's.
//
// Implements: ibv_create_qp, ibv_modify_qp to INIT.
func (rt *Runtime) Prepare(o PlainOptions) (*Prepared, error) {
	opts := o.Options
	opts.Raw, opts.Bare, opts.kind = true, true, o.Type
	opts.PrivateData = nil
	if opts.KeepAlive == 0 { // the peer's queue pair may refuse the question, and fail for it
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

// prepare makes the queue pair. What fails is given back by giveUp. Holder only.
func (c *Conn) prepare(p *Prepared, id *nocmID) error {
	c.state = connConnecting
	err := c.given()
	if err == nil {
		c.id = id
		err = c.setup()
	}
	if err != nil {
		c.giveUp(err)
		return err
	}
	if c.rt.cfg.stepped { // a seed replays it
		id.own.PSN = id.own.QPN
	}
	c.sh.targets[id] = c
	p.own, p.path = id.own, id.path
	return nil
}

// Local is where the queue pair is: what the peer must be told, once receives are
// posted for what it may send first.
func (p *Prepared) Local() bootstrap.Dest { return p.own }

// Connect joins the queue pair to the peer's, and p becomes the Conn. That nobody
// is there shows in the first operation that wants an answer. Whatever fails, p is
// closed. It may be called once. It waits, at most until ctx ends, for the system to
// find the peer's hardware address, then blocks on a reactor.
//
// Errors: bootstrap.ErrDest for a peer that cannot be; ErrUnreachable for one to
// whom there is no way; ErrClosed for the second call, or after Close;
// ErrDeviceRemoved; the device's; the context's.
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
		var joined error // the turn's, which may come to it after the context's end
		if err = c.sh.r.Do(ctx, func() { joined = c.join(peer) }); err == nil {
			err = joined
		} // or else it may be joined later: then it is closed as soon
	}
	if err == nil {
		p.given.Store(true)
		return c, nil
	}
	c.Abort()
	return nil, fmt.Errorf("connecting to %v: %w", peer, unreachable(c.rt.asRemoved(err)))
}

// join is Connect; what fails is given back by giveUp, while the caller has the
// error. Holder only.
func (c *Conn) join(peer bootstrap.Dest) error {
	err := c.given()
	if err == nil {
		c.sh.r.Flush()  // what was posted is at the device before anything can come
		err = c.given() // the turn may have found a dead queue
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

// Dial connects over nc to who calls Accept there, or to a server of the
// ibv_*_pingpong family: both say where their queue pairs are. nc stays the
// caller's; its deadlines are used. Whatever fails, p is closed. Errors as Connect;
// bootstrap.ErrMalformed; the network's.
func (p *Prepared) Dial(ctx context.Context, nc net.Conn) (*Conn, error) {
	return p.over(ctx, nc, bootstrap.Client)
}

// Accept is the other side of Dial, for who accepted nc.
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

// DialPlain is Prepare and Dial over a TCP connection to addr, "host:port", within
// Config.ConnectTimeout: where a Prepared accepts, or a server of the
// ibv_*_pingpong family.
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
		if <-ctx.Done(); errors.Is(context.Cause(ctx), ErrConnectTimeout) { // nc's deadline may be the first to tell
			err = fmt.Errorf("%w: %s, longer than %v (Config.ConnectTimeout): %v", ErrConnectTimeout, addr, rt.cfg.ConnectTimeout, err) //nolint:errorlint // its context has not ended
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
