package soft

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// queuePair is a queue pair of any type; qp_service.go describes the differences. See
// [verbs.QPState] for its state machine, req.go for its requester half and resp.go for its
// responder half.
type queuePair struct {
	dev      *device
	ctx      *deviceContext
	pd       *protectionDomain
	sendCQ   *completionQueue
	recvCQ   *completionQueue
	kind     verbs.QPType
	service  *service // of kind
	number   uint32
	userData uint64
	srq      *sharedQueue // nil: it has its own receive queue
	xrc      *xrcDomain   // of an XRC_RECV one, which has no context, domain and queues of its own; see xrc.go
	granted  verbs.QPCap
	sigAll   bool

	// state is a verbs.QPState. The engine writes it, posters read it: requests of a poster that
	// sees an old state are flushed by the engine.
	state atomic.Uint32
	// The engine replaces sq and rq when the queue pair is reset; posters read them.
	sq     atomic.Pointer[sendQueue]
	rq     atomic.Pointer[recvQueue]
	closed atomic.Bool // set by Close under the port's token; any goroutine may read it

	events asyncState // COMM_EST, SQ_DRAINED, LAST_WQE_REACHED, errors

	// doorbellRung is set by the poster that puts the queue pair on the doorbell list (one that
	// runs the engine itself need not; device.kickFor). The engine clears it when it takes the
	// queue pair off, before it examines the queue.
	doorbellRung atomic.Bool
	doorbellHook ring.Hook[queuePair]

	// The poster's: the arenas in which requests and inline payload were last found.
	wrArena, inlineArena *mem.Arena
	recvWRs              wrMemory

	// The rest belongs to the engine, under the port's token.
	attr         verbs.QPAttr
	mtu          uint32 // bytes
	fastMax      uint32 // see qualify
	route        *fabric.Route
	trafficClass uint8           // of its packets, while it has a route
	peerWaits    bool            // the connection manager told the peer to repeat without end after RNR NAKs
	path         wire.Path       // to the peer, found by the connection manager; zero without it
	guard        *guard          // of requests by reference in flight
	pace         *pace           // of UC and UD requests in flight
	groups       []verbs.GID     // multicast groups it is attached to
	bound        []*memoryWindow // of type 2, through this queue pair
	handles      []*xrcReceiver  // on an XRC_RECV queue pair
	active       bool            // on the device's work list
	stalled      *fabric.Route   // the route in whose line it waits, see resp_stall.go; nil: none
	deadline     time.Duration
	timer        int           // index in the timer heap + 1; 0: no entry
	timerAt      time.Duration // due time of that entry; 0: no entry
	req          requester
	resp         responder
}

var _ verbs.QP = (*queuePair)(nil)

// InboxHook returns the link into the device's doorbell list.
func (q *queuePair) InboxHook() *ring.Hook[queuePair] { return &q.doorbellHook }

// CreateQP makes a queue pair in RESET. It writes the granted capacities into init.Cap.
//
// Implements: ibv_create_qp.
func (p *protectionDomain) CreateQP(init *verbs.QPInitAttr) (verbs.QP, error) {
	q, err := p.newQP(init)
	if err != nil {
		return nil, err
	}
	if e := p.exclusive("ibv_create_qp", func() { err = p.addQP(q) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	init.Cap = q.granted
	return q, nil
}

// addQP adds q, which newQP made, to the device. The caller holds the token.
func (p *protectionDomain) addQP(q *queuePair) error {
	const op = "ibv_create_qp"
	for _, cq := range []*completionQueue{q.sendCQ, q.recvCQ} {
		if cq != nil && cq.closed.Load() {
			return opError(op, p.String(), syscall.EINVAL, "%w: %v", verbs.ErrClosed, cq)
		}
	}
	if q.srq != nil && q.srq.closed.Load() {
		return opError(op, p.String(), syscall.EINVAL, "%w: %v", verbs.ErrClosed, q.srq)
	}
	if err := p.ctx.dev.addQP(q); err != nil {
		return opError(op, p.String(), syscall.ENOMEM, "%w", err)
	}
	q.sendCQ.attach(q)
	if q.recvCQ != nil {
		q.recvCQ.attach(q)
	}
	if q.srq != nil {
		q.srq.qps++
	}
	p.qps++
	p.ctx.counts.QP++
	q.reset(&q.granted)
	return nil
}

// newQP checks the attributes and makes the queue pair, not yet numbered.
func (p *protectionDomain) newQP(init *verbs.QPInitAttr) (*queuePair, error) {
	const op = "ibv_create_qp"
	refuse := func(format string, a ...any) (*queuePair, error) {
		return nil, opError(op, p.String(), syscall.EINVAL, "%w: "+format, append([]any{verbs.ErrInvalid}, a...)...)
	}
	svc := services[init.Type]
	if init.Type == verbs.QPTXRCRecv {
		return refuse("an XRC_RECV queue pair is made by its domain")
	}
	if svc == nil {
		return nil, notYet(op, p.String(), fmt.Sprintf("queue pairs of type %v", init.Type))
	}
	scq, ok1 := p.ctx.ownCQ(init.SendCQ)
	rcq, ok2 := p.ctx.ownCQ(init.RecvCQ)
	srq, ok := p.ctx.ownSRQ(init.SRQ)
	switch {
	case init.Type == verbs.QPTXRCSend: // it receives nothing
		rcq, ok2, srq = nil, true, nil
	case init.SRQ != nil && (!ok || srq.xrcd != nil):
		return refuse("%v is no shared receive queue of its context, or an XRC one", init.SRQ)
	}
	if !ok1 || !ok2 {
		return refuse("a queue pair needs two completion queues of its context, has %v and %v", init.SendCQ, init.RecvCQ)
	}
	l, c := &p.ctx.dev.cfg.Limits, init.Cap
	if srq != nil || init.Type == verbs.QPTXRCSend {
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // it has no receives of its own
	}
	for _, a := range []struct {
		name string
		v    uint32
		top  int
	}{
		{"MaxSendWR", c.MaxSendWR, l.MaxQPWR}, {"MaxRecvWR", c.MaxRecvWR, l.MaxQPWR},
		{"MaxSendSGE", c.MaxSendSGE, l.MaxSGE}, {"MaxRecvSGE", c.MaxRecvSGE, l.MaxSGE},
		{"MaxInlineData", c.MaxInlineData, l.MaxInline},
	} {
		if uint64(a.v) > uint64(a.top) {
			return refuse("%s is %d, the device has %d", a.name, a.v, a.top)
		}
	}
	return &queuePair{
		dev: p.ctx.dev, ctx: p.ctx, pd: p, kind: init.Type, service: svc, sendCQ: scq, recvCQ: rcq, srq: srq,
		userData: init.UserData, granted: c, sigAll: init.SQSigAll,
	}, nil
}

// attach records that a queue of p completes here; detach undoes it. p may be attached twice.
func (q *completionQueue) attach(p *queuePair) { q.qps = append(q.qps, p) }

func (q *completionQueue) detach(p *queuePair) {
	if i := slices.Index(q.qps, p); i >= 0 { // the last one takes its place: there may be thousands to move
		last := len(q.qps) - 1
		q.qps[i], q.qps[last] = q.qps[last], nil
		q.qps = q.qps[:last]
	}
}

// Close destroys the queue pair in any state. Outstanding requests and completions not yet polled
// vanish. It returns [verbs.ErrBusy] while asynchronous events are unacknowledged.
//
// Implements: ibv_destroy_qp.
func (q *queuePair) Close() (err error) {
	const op = "ibv_destroy_qp"
	if q.closed.Load() {
		return nil
	}
	if e := q.ctx.closing(op, func() { err = q.destroy() }); e != nil {
		return e
	}
	return err
}

// destroy implements Close. The caller holds the token.
func (q *queuePair) destroy() error {
	if q.closed.Load() {
		return nil
	}
	if n := q.ctx.async.end(&q.events); n > 0 {
		return opError("ibv_destroy_qp", q.String(), syscall.EBUSY, "%w: %d events are not acknowledged", verbs.ErrBusy, n)
	}
	q.reset(&verbs.QPCap{}) // a kept handle must not keep the queues
	q.unbindAll()
	q.dev.removeQP(q)
	q.sendCQ.detach(q)
	if q.recvCQ != nil {
		q.recvCQ.detach(q)
	}
	if q.srq != nil {
		q.srq.qps--
	}
	q.pd.qps--
	q.ctx.counts.QP--
	return nil
}

// Context returns the context of the queue pair.
func (q *queuePair) Context() verbs.Context { return q.ctx }

// Num returns the queue pair number.
func (q *queuePair) Num() uint32 { return q.number }

// Type returns the transport service.
func (q *queuePair) Type() verbs.QPType { return q.kind }

// UserData returns the value given at creation.
func (q *queuePair) UserData() uint64 { return q.userData }

// String returns the queue pair's name.
func (q *queuePair) String() string {
	return fmt.Sprintf("QP 0x%06x of %s", q.number, q.dev.cfg.Name)
}
