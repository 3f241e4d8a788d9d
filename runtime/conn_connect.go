package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Limits of Options.PrivateData, in bytes.
const (
	MaxDialData   = verbs.MaxPrivateConnect - helloSize
	MaxAcceptData = verbs.MaxPrivateAccept - helloSize
)

// rejInvalidService is the connection manager's reject reason for a request to an address without a
// listener.
const rejInvalidService = verbs.RejInvalidServiceID

// Parameters of connections. RNR retries are unlimited, so a SEND on a raw connection waits until
// the peer posts a receive. A managed connection needs no RNR retries, because credits ensure that
// the peer has posted a receive.
const (
	rnrRetryCount = verbs.RNRRetryInfinite
)

// Dial connects to "host:port" with the runtime's options. It first looks up the host name; only
// ctx bounds the lookup. On a device of the system the source address is the one from which the system
// sends to the host, if the device has it. Of a host with several addresses, IPv4 and IPv6, each is tried until one has a
// listener: first those to which the system sends from an address of the device, and of these IPv4 first. Each has an equal part of the
// time that is left, and at least 2 s of it. The error is that of the first address, if it concerns the address.
// A link-local address needs its zone: "[fe80::1%eth0]:7471". Then it waits until the connection is established or has failed, at most
// Config.ConnectTimeout. If ctx ends first, Dial abandons the attempt. If Dial had already sent the
// connection request, it also notifies the peer. If the peer still has a connection of an earlier process
// with the number of the new queue pair (verbs.RejStaleConn), Dial asks again with another queue pair, up to
// three times within the same time.
//
// A listener whose backlog is full, and one that is closed, ends connections that its program has not accepted. A
// peer that has accepted one, or whose answer was late, may learn that afterwards: Dial returns an error
// that matches ErrPeerClosed, or has returned nil and the connection ends with ErrPeerClosed. RetryOf of the first is
// RetryLater.
//
// Errors: ErrAddress, ErrUnreachable, ErrConnectTimeout, ErrPeerClosed, *RejectError, errors of the device,
// the error of the context.
func (rt *Runtime) Dial(ctx context.Context, addr string) (*Conn, error) {
	return rt.DialOptions(ctx, addr, Options{})
}

// DialOptions is Dial with the options o. Each zero field of o is replaced by the runtime's option
// (Config.Conn).
func (rt *Runtime) DialOptions(ctx context.Context, addr string, o Options) (*Conn, error) {
	return rt.dialWait(ctx, addr, o, false)
}

// dialWait implements DialOptions and PrepareDial. PrepareDial sets the argument hold; dialWait
// then returns before the handshake.
func (rt *Runtime) dialWait(ctx context.Context, addr string, o Options, hold bool) (*Conn, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	attempt, f, err := rt.dialing(ctx, asked, addr, o, hold)
	if err != nil {
		return nil, asked.Cause(ctx, err)
	}
	c, err := f.Await(asked)
	if err != nil && f.Valid() {
		f.Discard() // if the connection is established after all, disposeConn closes it
		attempt.abort()
		return nil, fmt.Errorf("connecting to %s: %w", addr, asked.Cause(ctx, err))
	}
	return c, err
}

// DialAsync is DialOptions, but returns a future. DialAsync blocks for the lookup of the host name, which
// alone ctx bounds, and while the connection's memory is prepared. The first connection of a kind also makes and
// destroys some queue pairs, to find what the device grants (verbs.Context.QPLimits): on a virtual function
// some tens of milliseconds.
func (rt *Runtime) DialAsync(ctx context.Context, addr string, o Options) (f futures.Future[*Conn], err error) {
	if _, err := reactor.Unended(ctx); err != nil {
		return f, err
	}
	_, f, err = rt.dialing(ctx, nil, addr, o, false)
	return f, err
}

// dialing starts a connection attempt and returns it and its future. It looks addr up until ctx ends, and waits for
// memory until asked ends.
func (rt *Runtime) dialing(ctx context.Context, asked reactor.DoneContext, addr string, o Options, hold bool) (a *dialAttempt, f futures.Future[*Conn], err error) {
	ways, err := rt.destinations(ctx, addr)
	if err != nil {
		return nil, f, err
	}
	if o, err = rt.inherit(o); err != nil {
		return nil, f, err
	}
	if err := o.checkPrivate("a request", verbs.MaxPrivateConnect); err != nil {
		return nil, f, err
	}
	c, err := rt.newConn(asked, o)
	if err != nil {
		return nil, f, err
	}
	a = &dialAttempt{ways: ways, opts: o, conn: c}
	c.hold, c.attempt = hold, a
	c.promise, f = rt.conns.New(nil)
	c.sh.r.Defer(func() { c.dial() })
	return a, f, nil
}

// dial starts to connect. Holder only, like all other methods of Conn from here to the end of this
// file.
func (c *Conn) dial() {
	if c.begin() {
		c.lookUp()
	}
}

// lookUp begins to resolve the address that the attempt is at.
func (c *Conn) lookUp() {
	c.resolver = c.attempt.ways[c.attempt.at]
	c.remote = c.resolver.dst
	id, err := c.sh.cm.CreateID(verbs.PSTCP, 0)
	if err != nil {
		c.giveUp(err)
		return
	}
	if err = c.setID(id); err == nil {
		if err = c.resolver.ask(id); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
			if _, system := c.rt.dev.(verbs.Addresser); system {
				err = c.rt.unreached(c.remote, err)
			}
		}
	}
	if err != nil {
		c.elsewhere(err)
	}
}

// begin moves the connection to connConnecting and starts the timer. If the
// connection was already closed, or the device removed, begin calls giveUp and returns false.
func (c *Conn) begin() bool {
	c.state = connConnecting
	if err := c.checkStart(); err != nil {
		c.giveUp(err)
		return false
	}
	if a := c.attempt; a != nil && (a.end.IsZero() || c.hold) { // a Pending may continue the attempt much later
		a.end = c.rt.cfg.now().Add(c.rt.cfg.ConnectTimeout)
	}
	c.limitTime()
	return true
}

// checkStart returns an error if the connection was closed or the device removed.
func (c *Conn) checkStart() error {
	err := c.cause.Load()
	if err == nil && c.rt.gone.Load() {
		err = verbs.ErrDeviceRemoved
	}
	return err
}

// setID assigns an identifier to the connection, and sets its ACK timeout and its type of service.
func (c *Conn) setID(id verbs.CMID) error {
	c.id = id
	c.sh.targets[id] = c
	if err := id.SetAckTimeout(c.opts.ackTimeout()); err != nil {
		return err
	}
	if c.opts.TOS != 0 { // an accepting end uses it if the request has none
		return id.SetTOS(c.opts.TOS)
	}
	return nil
}

// setup creates the queue pair and posts the receives, and then calls then, with the turn held. With a
// nil error the device has the receives. The handshake begins later, so the peer cannot send before the
// receives are posted. With an error the caller calls giveUp, which does nothing if the connection has
// ended meanwhile.
func (c *Conn) setup(then func(error)) {
	if err := c.q.Admit(); err != nil {
		then(err)
		return
	}
	c.admitted = true
	if c.pool != nil {
		if err := c.pool.open(); err != nil {
			then(c.unprepared(err))
			return
		}
	}
	init, id := c.q.InitAttr(), c.id
	c.command(lineMake, func() error { return id.CreateQP(c.sh.pd, init) }, func(err error) {
		switch {
		case c.state != connConnecting:
			c.freeRecvs(0)
			err = c.cause.Load()
		case err != nil:
			c.freeRecvs(0)
			err = c.unprepared(err)
		default:
			err = c.bind(init.Cap)
		}
		then(err)
	})
}

// bind gives the queue the queue pair that setup has made, and posts the receives.
func (c *Conn) bind(granted verbs.QPCap) error {
	posted := 0
	defer func() { c.freeRecvs(posted) }() // c.q ends the posted receives
	c.q.Bind(c.id.QP(), granted)
	c.qpn = c.id.QP().Num()
	c.inline = min(c.q.Inline(), c.opts.Inline)
	c.opts.Shared.join(c)
	for ; posted < c.ownRecvs; posted++ {
		if err := c.postFirst(c.recvs.at(uint32(posted))); err != nil { // the connection was closed or has failed meanwhile
			return err
		}
	}
	if c.pool != nil {
		c.pool.s.q.Ready() // receives of the share may be submitted and not posted
	}
	c.sh.r.Flush()
	if c.state != connConnecting { // the queue failed in Flush
		return c.cause.Load()
	}
	return nil
}

// ready creates the queue pair and then begins the handshake. If c.hold is set, Pending.Connect
// begins the handshake later. At the end it calls then, as setup does.
func (c *Conn) ready(then func(error)) {
	c.setup(func(err error) {
		switch {
		case err != nil:
			then(err)
		case c.hold:
			c.held()
			then(nil)
		default:
			c.sendHandshake(then)
		}
	})
}

// sendHandshake sends this side's message of the handshake: the request if this side dials,
// otherwise the acceptance, for which the queue pair is moved. At the end it calls then, as setup does.
func (c *Conn) sendHandshake(then func(error)) {
	id, param := c.id.(verbs.CMID), c.param()
	if !c.accepting {
		then(id.Connect(param))
		return
	}
	c.sh.unconfirmed[c.q.QP()] = c
	c.command(lineStep, func() error { return id.Accept(param) }, func(err error) {
		if errors.Is(err, syscall.EINVAL) { // the peer has withdrawn its request
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		then(err)
	})
}

// takeSteps takes the steps to which the peer's answer leads, if the event leaves them to this side
// (ConnParam.HoldResponse).
func (c *Conn) takeSteps(ev *verbs.CMEvent) {
	if c.state != connConnecting {
		return
	}
	id, param := c.id.(verbs.CMID), c.param()
	c.command(lineStep, func() error { return id.Accept(param) }, func(err error) {
		switch {
		case err != nil:
			c.giveUp(fmt.Errorf("%w: %v: %w", ErrUnreachable, c.remote, err))
		case c.state == connConnecting:
			c.established(ev)
		}
	})
}

// param returns this side's parameters for the request or the acceptance.
func (c *Conn) param() *verbs.ConnParam {
	return &verbs.ConnParam{
		PrivateData: c.ownHello(), ResponderResources: c.rt.depth(c.opts), InitiatorDepth: c.rt.depth(c.opts),
		RetryCount: c.opts.retries(), RNRRetryCount: rnrRetryCount, HoldResponse: c.sh.commands.off,
	}
}

// readPeerHello stores what the peer's private data contains: the data of the peer's program and,
// for a managed connection, the credits and the size of the peer's receives.
func (c *Conn) readPeerHello(private []byte) error {
	h, err := readHello(private, c.opts)
	if err != nil {
		return err
	}
	c.helloRead, c.private = true, h.User
	if !h.Raw {
		c.credits = newAllowance(int(h.Credits), int(h.Most))
		port := c.oneWR - frameSize
		c.eager = int(min(uint64(h.RecvSize), uint64(port)))
		if c.largest = c.eager; h.LargeBits > 0 && c.rt.carriesLarge(c.opts) {
			c.largest = max(c.eager, min(1<<h.LargeBits, port))
		}
	}
	return nil
}

// onCM implements cmTarget.
func (c *Conn) onCM(ev *verbs.CMEvent) {
	if c.keeps(ev) {
		return
	}
	var err error
	switch ev.Type {
	case verbs.CMAddrResolved:
		if ev.ID.Device() != c.rt.dev.Device().Name {
			c.elsewhere(c.rt.unreached(c.remote, fmt.Errorf("it is reached through device %s", ev.ID.Device())))
			return
		}
		err = ev.ID.ResolveRoute(c.rt.cfg.ConnectTimeout)
	case verbs.CMRouteResolved:
		c.ready(c.giveUpIf)
	case verbs.CMConnectResponse:
		c.takeSteps(ev)
	case verbs.CMEstablished:
		if c.state == connConnecting {
			c.established(ev)
		}
	case verbs.CMRejected:
		if ev.Status != verbs.RejStaleConn || !c.redial() {
			c.elsewhere(c.rejected(ev))
			return
		}
	case verbs.CMAddrError, verbs.CMRouteError, verbs.CMUnreachable, verbs.CMConnectError:
		if c.state == connConnecting && c.resolver.isTimeout(ev) && !c.resolver.slow(c.attempt.at+1 < len(c.attempt.ways)) {
			err = c.resolver.ask(ev.ID)
			break
		}
		err = fmt.Errorf("%w (%w)", eventError(ev.Type), statusError(ev.Status))
		if ev.Type == verbs.CMAddrError || ev.Type == verbs.CMRouteError {
			c.elsewhere(c.rt.unreached(c.remote, err))
			return
		}
		c.elsewhere(fmt.Errorf("%w: %v: %w", ErrUnreachable, c.remote, err))
		return
	case verbs.CMDisconnected:
		if c.up && c.state == connConnecting { // its first frame may have arrived with messages; nothing is sent to it any more
			c.opened()
		}
		c.peerLeft()
	case verbs.CMDeviceRemoval:
		c.fail(verbs.ErrDeviceRemoved)
	}
	c.giveUpIf(err)
}

// giveUpIf calls giveUp if err is not nil.
func (c *Conn) giveUpIf(err error) {
	if err != nil {
		c.giveUp(err)
	}
}

// eventError is the event that has ended an attempt to connect. It is part of the error of the attempt.
type eventError verbs.CMEventType

// Error returns the name of the event.
func (e eventError) Error() string { return verbs.CMEventType(e).String() }

// statusError converts the status of an event to an error. A negative status is an errno; any other
// status is a code of the connection manager.
func statusError(status int) error {
	if status < 0 {
		return syscall.Errno(-status)
	}
	return errors.New("status " + strconv.Itoa(status))
}

func (c *Conn) rejected(ev *verbs.CMEvent) error {
	return refusal(c.remote, ev.Status, ev.Conn.PrivateData)
}

// refusal makes the error for a request that the peer at addr has rejected. The
// argument private is the private data of the rejection. A listener that runs this package puts a
// code, a text and the data of its program there.
func refusal(addr netip.AddrPort, reason int, private []byte) error {
	e := &RejectError{Addr: addr.String(), Reason: reason}
	if reason == verbs.RejConsumer {
		if r, bad := proto.ParseReject(private); bad == nil {
			e.Code, e.Text, e.Data = r.Code, r.Text, r.Data
		} else {
			e.Data = foreignData(private)
		}
	}
	return e
}

func (c *Conn) established(ev *verbs.CMEvent) {
	if !c.helloRead { // the dialing side
		if err := c.readPeerHello(ev.Conn.PrivateData); err != nil {
			c.giveUp(err)
			return
		}
	}
	c.up = true
	c.openIf()
}

// opened moves the connection to connOpen, and passes it to Dial, to Pending.Connect or to the
// listener (Conn.settle).
func (c *Conn) opened() {
	c.sh.r.StopTimer(c.timer)
	c.state = connOpen
	c.confirmed()
	c.attempt.ended()
	c.attempt = nil
	c.local, c.remote, c.link = c.id.LocalAddr(), c.id.PeerAddr(), c.rt.provider.Name()
	if l, ok := c.id.(interface{ Link() string }); ok {
		c.link = l.Link()
	}
	c.settle(nil)
	if c.lastWQESeen { // the queue pair was moved to ERR while the connection was connecting
		c.flushed()
	}
}

// giveUp fails a connection that is still connecting. In any other state it does nothing.
func (c *Conn) giveUp(err error) {
	if c.state != connConnecting {
		return
	}
	c.sh.r.StopTimer(c.timer)
	err = c.rt.asRemoved(err)
	c.setCause(err)
	c.destroy(func() { c.settle(err) })
}

// disposeConn handles a connection whose future was discarded. It gives a connection from
// AcceptAsync or Accept back to the listener, and aborts any other connection.
func disposeConn(c *Conn, err error) {
	switch {
	case err != nil:
	case c.from != nil:
		c.from.giveBack()
	default:
		c.Abort()
	}
}
