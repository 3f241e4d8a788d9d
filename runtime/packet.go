package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// PacketConn sends and receives datagrams. It has one UD queue pair for any number of peers and
// multicast groups. A datagram arrives whole or is lost, and the sender is not notified of a loss.
// The network may duplicate and reorder datagrams.
//
//	ListenPacket            Close, or the queue pair or the device fails
//	────────────> open ────────────────────────────────────────────────> gone
//
// All methods may be called from any goroutine. The caller closes the PacketConn.
type PacketConn struct {
	rt   *Runtime
	sh   *shard
	q    *reactor.Queue
	opts Options
	addr netip.AddrPort
	port uint8 // of the device, that sends and receives the datagrams; written by open
	lids bool  // the port's addresses are LIDs (InfiniBand); written by open
	most int   // the port's limit of a datagram, in bytes; written by open

	// cause is the error that new operations get. The holder of the reactor's turn or Close sets
	// the cause, one time, and then closes the channel ended. Any goroutine reads the cause.
	cause cause
	ended chan struct{}

	slots  []packetSlot
	waitIn ring.Inbox[packetWait, *packetWait] // new calls of Recv, which match() moves to waits
	task   reactor.Task                        // runs match()

	peerMu sync.Mutex // guards peers
	peers  map[*Peer]struct{}

	leaving  leaving       // set when the destruction of the queue pair begins
	closed   chan struct{} // closed when everything is released
	closeErr error         // written before closed is closed

	// Only the holder of the reactor's turn uses the fields below.
	id        verbs.CMID // of the queue pair; listens at the first address
	others    listening  // at the other addresses
	admitted  bool
	arrived   []int                     // indexes of the slots with undelivered datagrams, oldest first
	waits     []*packetWait             // calls of Recv that wait, oldest first
	pruned    int                       // used by served() in conn_recv_waits.go
	groups    map[verbs.GID]*membership // by membership.key
	asking    map[*resolving]struct{}
	gone      bool
	destroyed bool
	timer     *reactor.Timer // limits the time of the flush
}

// ListenPacket opens a PacketConn at "host:port", where peers find it with [PacketConn.Resolve]. An
// empty host means all addresses that the device has on the port of the first of them, as for
// [Runtime.Listen]: also those that it gets later, at one port. If the port is 0, ListenPacket chooses a
// free port, which Addr returns. A program that only sends can use port 0.
//
// The options that apply are SendDepth, RecvCredits, MaxSGE, Inline, TOS and Recorder. A reply has the
// type of service of the datagram that it answers, if that has one. RecvCredits is the
// number of receive buffers. A received datagram occupies a buffer until Packet.Release. While no
// buffer is free, arriving datagrams are lost.
//
// Errors: ErrAddress, ErrConfig, ErrNotSupported, ErrClosed, errors of the device.
//
// Implements: rdma_create_id and rdma_listen in port space UDP, ibv_create_qp of type UD.
func (rt *Runtime) ListenPacket(addr string, o Options) (_ *PacketConn, err error) {
	ctx := context.Background()
	at, err := rt.resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	o.Raw, o.Shared = true, nil
	if o, err = rt.inherit(o); err != nil {
		return nil, err
	}
	if err := rt.enter(); err != nil {
		return nil, err
	}
	defer rt.leave()
	rt.addrMu.Lock()
	defer rt.addrMu.Unlock()
	all := rt.allOf(addr)
	ips, err := rt.listenAt(all, at.Addr())
	if err != nil {
		return nil, fmt.Errorf("opening datagrams at %s: %w", addr, rt.asRemoved(err))
	}
	p := &PacketConn{rt: rt, sh: rt.shard(), opts: o, ended: make(chan struct{}), closed: make(chan struct{}),
		peers: map[*Peer]struct{}{}, groups: map[verbs.GID]*membership{}, asking: map[*resolving]struct{}{}}
	p.others = listening{sh: p.sh, target: p, space: verbs.PSUDP, backlog: DefaultBacklog, all: all, ids: map[netip.Addr]verbs.CMID{}}
	p.task.Fn = p.match
	least := o.least
	least.RecvDepth = o.RecvCredits
	p.q, err = p.sh.r.Prepare(reactor.QueueConfig{
		PD: rt.pd, Type: verbs.QPTUD, SendDepth: o.SendDepth, RecvDepth: o.RecvCredits, MaxSGE: o.MaxSGE, RecvSGE: 1,
		Inline: o.Inline, Recorder: o.Recorder, Least: &least,
	})
	if err != nil {
		return nil, err
	}
	p.q.OnFail(p.fail)
	p.q.OnFlush(func() { p.fail(fmt.Errorf("%w: it was moved to ERR", ErrQueuePair)) })
	if err := p.makeSlots(); err != nil {
		return nil, errors.Join(err, p.q.Discard())
	}
	rt.mu.Lock()
	rt.packets[p] = struct{}{}
	rt.mu.Unlock()
	var lerr error
	if err := p.sh.r.Do(ctx, func() {
		if lerr = p.open(ips, at.Port()); lerr != nil {
			p.fail(lerr) // begins to release everything; Runtime.Close waits until everything is released
		}
	}); err != nil {
		lerr = err
	}
	if lerr != nil {
		return nil, fmt.Errorf("opening datagrams at %s: %w", addr, rt.asRemoved(lerr))
	}
	return p, nil
}

// PacketConn.open creates the queue pair, posts the receives and listens. If open fails, the caller
// must call p.fail(), which releases everything. Holder only.
func (p *PacketConn) open(ips []netip.Addr, port uint16) (err error) {
	posted := 0
	defer func() { // free the buffers of the unposted receives; a posted receive frees its buffer when it ends
		for i := range p.slots[posted:] {
			p.slots[posted+i].buf.drop()
		}
	}()
	if err := p.q.Admit(); err != nil {
		return err
	}
	p.admitted = true
	if err := tryPorts(port, func() error { return p.bind(ips, port) }, p.unbind); err != nil {
		return err
	}
	init := p.q.InitAttr()
	if err := p.id.CreateQP(p.sh.pd, init); err != nil {
		return err
	}
	p.q.Bind(p.id.QP(), init.Cap)
	for ; posted < len(p.slots); posted++ {
		if err := p.slots[posted].post(); err != nil {
			return err
		}
	}
	p.sh.r.Flush()
	return p.id.Listen(DefaultBacklog)
}

// bind binds the identifier of the queue pair to the first of the addresses, and listens at the others. Those
// are left out that an interface has lost meanwhile, or does not have yet, as long as there is another. Holder only.
func (p *PacketConn) bind(ips []netip.Addr, port uint16) (err error) {
	for n, ip := range ips {
		if p.id, err = p.sh.cm.CreateID(verbs.PSUDP, 0); err != nil {
			return err
		}
		p.sh.targets[p.id] = p
		if err = p.id.Bind(netip.AddrPortFrom(ip, port)); err == nil {
			p.addr, ips = p.id.LocalAddr(), ips[n+1:]
			break
		}
		p.unbind()
		if !elsewhere(err) {
			break
		}
	}
	if err == nil {
		err = p.takePort()
	}
	if err == nil {
		if _, err = p.others.start(ips, p.addr.Port()); elsewhere(err) { // none of the others is left
			err = nil
		}
	}
	return err
}

// unbind undoes bind. Holder only.
func (p *PacketConn) unbind() {
	p.others.leaveAll()
	if p.id != nil {
		p.sh.closeID(p.id, nil)
		p.id = nil
	}
}

// follow makes p listen at the addresses that the device has now. Holder only.
func (p *PacketConn) follow(ips []netip.Addr) {
	if !p.gone {
		p.others.follow(slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return ip == p.addr.Addr() }), p.addr.Port())
	}
}

// takePort notes the port that the identifier is bound to. Holder only.
func (p *PacketConn) takePort() (err error) {
	if p.port = p.id.Port(); p.port == 0 { // bound to all devices
		if p.port, err = verbs.ChoosePort(p.rt.dev); err != nil {
			return err
		}
	}
	port, err := p.rt.dev.QueryPort(p.port)
	p.others.port, p.lids = p.port, port.LinkLayer == verbs.LinkInfiniBand
	p.most = int(min(port.ActiveMTU.Bytes(), p.sh.r.MaxDatagram())) // the receives are for MaxDatagram
	return err
}

// Addr returns the address at which peers find p; of several, the one that it has had first.
func (p *PacketConn) Addr() netip.AddrPort { return p.addr }

// MaxPacket returns the size limit of a datagram in bytes: the port's active MTU.
func (p *PacketConn) MaxPacket() int { return p.most }

// Done returns a channel that is closed when p accepts no more operations. Err then returns the
// cause.
func (p *PacketConn) Done() <-chan struct{} { return p.ended }

// Err returns the error that new operations get, or nil while p accepts them.
func (p *PacketConn) Err() error { return p.cause.Load() }

// onCM implements cmTarget.
func (p *PacketConn) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMConnectRequest: // a peer called Resolve, and asks for the queue pair number
		num := p.q.QP().Num()
		p.sh.rejectLater(ev.ID, func(id verbs.CMID) {
			if err := id.Accept(&verbs.ConnParam{QPNum: num}); err != nil {
				_ = id.Reject(proto.Reject{Code: proto.RejectResources, Text: err.Error()}.Encode()) // if Reject fails, the peer's Resolve times out
			}
		})
	case verbs.CMDeviceRemoval:
		p.fail(verbs.ErrDeviceRemoved)
	}
}

// setCause sets the cause and closes the channel ended. If a cause was set before, it does nothing.
func (p *PacketConn) setCause(err error) {
	if p.cause.set(err) {
		close(p.ended)
	}
}

// PacketConn.fail ends p. Outstanding requests are flushed, and their errors match the cause. Holder
// only.
func (p *PacketConn) fail(cause error) {
	p.setCause(cause)
	if errors.Is(cause, verbs.ErrDeviceRemoved) {
		p.rt.deviceGone()
		if p.gone { // an earlier p.end() waits for the flush, but a removed device flushes nothing
			p.destroy()
		}
	}
	p.end()
}

// Close ends p, and waits until everything is released. Outstanding operations complete, some with an
// error. Datagrams that Recv has not delivered are lost. When ctx ends, Close waits some seconds
// more, as Conn.Close does. If p is not closed by then, Close returns ErrReactorBusy, and p is closed
// later. Close is idempotent.
func (p *PacketConn) Close(ctx context.Context) error { return p.close(ctx, ErrConnClosed) }

// PacketConn.close is Close, except that new operations get the error cause.
func (p *PacketConn) close(ctx context.Context, cause error) error {
	if ctx == nil {
		return ErrNilContext
	}
	done := ctx.Done()
	p.setCause(cause)
	p.sh.r.Defer(p.end)
	select {
	case <-p.closed:
		return p.closeErr
	case <-done:
	}
	if bound, ok := p.leaving.waitBound(p.closed); !ok {
		return fmt.Errorf("closing the datagrams at %v: %w within %v", p.addr, ErrReactorBusy, bound)
	}
	return p.closeErr
}

// PacketConn.end moves the queue pair to ERR, so that the device flushes all requests. When all
// requests have ended, or after flushBound, the reactor calls p.destroy(). Holder only.
func (p *PacketConn) end() {
	if p.gone {
		return
	}
	p.gone = true
	p.q.Fail(p.cause.Load())
	p.match()
	qp := p.q.QP()
	if qp == nil || p.rt.gone.Load() { // a removed device flushes nothing
		p.destroy()
		return
	}
	if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		p.closeErr = errors.Join(p.closeErr, err)
	}
	p.timer = p.sh.r.After(flushBound, p.destroy)
	p.q.Idle(p.destroy)
}

// PacketConn.destroy begins to release everything; finishClose ends the release. A second call of
// destroy has no effect. Holder only.
func (p *PacketConn) destroy() {
	if p.destroyed {
		return
	}
	p.destroyed = true
	p.sh.r.StopTimer(p.timer)
	p.leaveAll()
	for r := range p.asking {
		r.end(nil, p.cause.Load())
	}
	finish := func(err error) {
		release := p.q.Discard
		if p.admitted {
			release = func() error { return p.q.Release(p.endCause()) }
		}
		p.closeErr = errors.Join(p.closeErr, err, release())
		p.freeArrived()
		p.finishClose()
	}
	if p.id == nil {
		finish(nil)
		return
	}
	p.q.Seal()
	p.leaving.Store(true)
	p.others.close(func(err error) {
		p.closeErr = errors.Join(p.closeErr, err)
		p.sh.closeID(p.id, finish)
	})
}

// finishClose closes the address handles, and then the channel p.closed. The queue was released
// before, so only a call of Send that is about to fail can still use an address handle. In this case
// finishClose is called again after closeRetry. Holder only.
func (p *PacketConn) finishClose() {
	busy, err := p.closePeers()
	p.closeErr = errors.Join(p.closeErr, err)
	if busy {
		p.sh.r.After(closeRetry, p.finishClose)
		return
	}
	p.rt.mu.Lock()
	delete(p.rt.packets, p)
	p.rt.mu.Unlock()
	close(p.closed)
	p.match() // settles the calls of Recv that were made just before p.closed was closed
}
