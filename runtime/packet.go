package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// PacketConn sends and receives datagrams: one UD queue pair for any number of
// peers and multicast groups. A datagram is whole or lost; it may come twice, and
// out of order. Nothing tells the sender.
//
//	ListenPacket            Close, or the queue pair or the device failed
//	────────────> open ────────────────────────────────────────────────> gone
//
// All methods may be called from any goroutine. The caller closes it.
type PacketConn struct {
	rt   *Runtime
	sh   *shard
	q    *reactor.Queue
	opts Options
	addr netip.AddrPort
	from uint8 // the entry of the port's address table that replies to what came to a group leave from

	// cause is why it takes no more operations. Set once, by the holder or by
	// Close; read by all. ended is closed by who has set it.
	cause cause
	ended chan struct{}

	slots  []packetSlot
	waitIn ring.Inbox[packetWait, *packetWait] // Recv pushes, match takes
	backIn ring.Inbox[packetSlot, *packetSlot] // dispose pushes, match takes
	task   reactor.Task

	peerMu sync.Mutex // guards peers
	peers  map[*Peer]struct{}

	leaving  leaving       // its queue pair is being destroyed
	closed   chan struct{} // closed when gone
	closeErr error         // written before closed is

	// The holder's.
	id        verbs.CMID
	admitted  bool
	arrived   []int // slots with datagrams, oldest first
	waits     []*packetWait
	pruned    int // waits left by the last look at them (served)
	groups    map[netip.Addr]*membership
	asking    map[*resolving]struct{}
	gone      bool
	destroyed bool
	timer     *reactor.Timer // bounds the flush
}

// ListenPacket opens datagrams at "host:port", where peers find it by
// [PacketConn.Resolve]. An empty host is the device's address, port 0 is chosen
// (see Addr): so do those who only send. Of the options SendDepth, RecvCredits
// (datagrams that wait here until somebody receives them; more are lost), MaxSGE,
// Inline and Recorder count.
//
// Errors: ErrAddress, ErrConfig, ErrNotSupported, the device's.
//
// Implements: rdma_create_id and rdma_listen in port space UDP, ibv_create_qp of
// type UD.
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
	p := &PacketConn{rt: rt, sh: rt.shard(), opts: o, ended: make(chan struct{}), closed: make(chan struct{}),
		peers: map[*Peer]struct{}{}, groups: map[netip.Addr]*membership{}, asking: map[*resolving]struct{}{}}
	from, err := verbs.ChooseGID(rt.dev, packetPort)
	if err != nil {
		return nil, err
	}
	p.from = uint8(from.Index) // of up to 256
	p.task.Fn = p.match
	p.q, err = p.sh.r.Prepare(reactor.QueueConfig{
		PD: rt.pd, Type: verbs.QPTUD, SendDepth: o.SendDepth, RecvDepth: o.RecvCredits, MaxSGE: o.MaxSGE, Inline: o.Inline,
		Recorder: o.Recorder,
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
		if lerr = p.open(at); lerr != nil {
			p.fail(lerr) // Runtime.Close waits for the end
		}
	}); err != nil {
		lerr = err
	}
	if lerr != nil {
		return nil, fmt.Errorf("opening datagrams at %s: %w", addr, rt.asRemoved(lerr))
	}
	return p, nil
}

// open starts. Holder only. What fails is given back by destroy.
func (p *PacketConn) open(at netip.AddrPort) (err error) {
	posted := 0
	defer func() { // the queue gives back what was posted; the rest nobody would
		for i := range p.slots[posted:] {
			p.slots[posted+i].buf.drop()
		}
	}()
	if err := p.q.Admit(); err != nil {
		return err
	}
	p.admitted = true
	if p.id, err = p.sh.cm.CreateID(verbs.PSUDP, 0); err != nil {
		return err
	}
	p.sh.targets[p.id] = p
	if err := p.id.Bind(at); err != nil {
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
	if err := p.id.Listen(DefaultBacklog); err != nil {
		return err
	}
	p.addr = p.id.LocalAddr()
	return nil
}

// Addr is where peers find it.
func (p *PacketConn) Addr() netip.AddrPort { return p.addr }

// MaxPacket is how many bytes one datagram carries: the port's path MTU.
func (p *PacketConn) MaxPacket() int { return int(p.sh.r.MaxDatagram()) }

// Done is closed when no more operations are taken. Err says why.
func (p *PacketConn) Done() <-chan struct{} { return p.ended }

// Err is why no more operations are taken; nil while they are.
func (p *PacketConn) Err() error { return p.cause.Load() }

// onCM implements cmTarget.
func (p *PacketConn) onCM(ev *verbs.CMEvent) {
	switch ev.Type {
	case verbs.CMConnectRequest: // somebody asks for the queue pair
		num := p.q.QP().Num()
		p.sh.rejectLater(ev.ID, func(id verbs.CMID) {
			if err := id.Accept(&verbs.ConnParam{QPNum: num}); err != nil {
				_ = id.Reject(proto.EncodeReject(proto.RejectResources, err.Error())) // if that fails too, who asked times out
			}
		})
	case verbs.CMDeviceRemoval:
		p.fail(verbs.ErrDeviceRemoved)
	}
}

// setCause records why it ends; the first reason stays.
func (p *PacketConn) setCause(err error) {
	if p.cause.set(err) {
		close(p.ended)
	}
}

// fail ends it: what is out is flushed, and completes with the cause. Holder
// only.
func (p *PacketConn) fail(cause error) {
	p.setCause(cause)
	if errors.Is(cause, verbs.ErrDeviceRemoved) {
		p.rt.deviceGone()
		if p.gone { // the flush that it waits for will not come
			p.destroy()
		}
	}
	p.end()
}

// Close ends it: operations under way complete, some with an error, and what
// nobody received is lost. It is idempotent and waits for its reactor, at most
// until ctx ends and as long after as Conn.Close: then ErrReactorBusy, and it closes later.
func (p *PacketConn) Close(ctx context.Context) error { return p.close(ctx, ErrConnClosed) }

// close is Close; cause is why no more operations are taken.
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

// end makes the device give everything back. Holder only.
func (p *PacketConn) end() {
	if p.gone {
		return
	}
	p.gone = true
	p.q.Fail(p.cause.Load())
	p.match()
	qp := p.q.QP()
	if qp == nil || p.rt.gone.Load() { // a device that is gone flushes nothing
		p.destroy()
		return
	}
	if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		p.closeErr = errors.Join(p.closeErr, err)
	}
	p.timer = p.sh.r.After(flushBound, p.destroy)
	p.q.Idle(p.destroy)
}

// destroy gives everything back, once. Holder only.
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
		p.over()
	}
	if p.id == nil {
		finish(nil)
		return
	}
	p.q.Seal()
	p.leaving.Store(true)
	p.sh.closeID(p.id, finish)
}

// over ends it. The address handles go last: nothing uses them any more, but for a
// Send that is just being refused. Holder only.
func (p *PacketConn) over() {
	busy, err := p.closePeers()
	p.closeErr = errors.Join(p.closeErr, err)
	if busy {
		p.sh.r.After(closeRetry, p.over)
		return
	}
	p.rt.mu.Lock()
	delete(p.rt.packets, p)
	p.rt.mu.Unlock()
	close(p.closed)
	p.match() // what was discarded before its owner could see the end
}
