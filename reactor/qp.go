package reactor

import (
	"fmt"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Queue is a queue pair attached to a reactor.
//
//	 Prepare           Admit, Bind       Fail, or a failed completion      Release
//	──────────> unbound ──────────> open ─────────────────────────> failed ────────────> released
//	                                  └───────────────────────────────────────────────────^
//
// Only an open queue accepts requests. A failed queue refuses new requests with an error that wraps
// the cause of the failure. The device flushes the outstanding requests of a failed queue. Release
// ends all remaining requests with an error.
type Queue struct {
	r      *Reactor
	cfg    QueueConfig
	id     uint32
	qp     verbs.QP
	qpn    uint32
	srq    verbs.SRQ // set only in the Queue of a SharedRecv, which has no qp
	tab    *table
	rec    *recorder // nil without a recorder
	inline int       // the largest number of inline bytes of a request; set by Bind
	// requests is the result of cfg.requests: a map lookup for each request would be too slow.
	requests verbs.OpcodeSet
	failed   failure

	hook ring.Hook[readyQueue]
	// queued is set while the queue is on the ready list or about to be pushed on it. A submitter
	// calls queued.Enter after it has pushed a request on sendStack or recvStack. (PostRecvLater
	// does not call Enter.) The holder of the turn calls queued.Leave before it takes the requests
	// off these stacks.
	queued    ring.Listed
	firstRecv uint32     // the first receive slot
	links     ring.Links // of all slots; the lists below share them, and so do backlog and order
	sendStack *ring.IndexStack
	recvStack *ring.IndexStack // nil without receives
	sendFree  *ring.Slots      // nil without sends; each slot is room for one request in the send queue
	recvFree  *ring.FreeList   // nil without receives
	ctrlFree  *ring.FreeList   // nil without control sends

	// Only the holder of the turn uses the fields below. The exceptions are onFail and onFlush,
	// which the methods OnFail and OnFlush set before Bind.
	backlog      backlog
	sendCQ       *cqState // set by Admit, as recvCQ
	recvCQ       *cqState
	order        order        // outstanding sends
	recvs        int          // outstanding receives
	peerReceives uint32       // counts completed receives and calls of NotePeerReceive; wraps
	localSends   uint32       // counts BIND_MW and LOCAL_INV requests that succeeded; wraps
	peerLimit    *peerLimit   // nil: no limit; see SetPeerLimit
	progressMark progressMark // see Stuck
	sincesig     int          // sends posted since the last signaled send
	marker       bool         // the marker (KindMarker) is outstanding
	remark       bool         // another marker is to follow it; see postMarker
	sealed       bool         // see Seal
	quarantine   *quarantine  // nil before Release
	retired      []uint32     // slots of ended sends, which freeRetired frees together
	retiredRecvs []uint32     // free-list indices of ended receives, which freeRetired frees together
	idle         []idleCall   // functions to call, in order, when the queue is idle
	onFail       func(error)  // see OnFail
	onFlush      func()       // see OnFlush
}

// Prepare makes a queue. The memory of its requests is registered in cfg.PD when it is needed. The
// caller must then admit the queue or call Discard. Any goroutine may call Prepare; it need not hold
// the turn. The first Prepare for a type and its capacities may block while the device is asked for its limits
// (verbs.Context.QPLimits).
//
// Errors: ErrConfig if cfg is invalid, or the device has less than cfg.Least, or no queue pairs of the type; errors
// of the device.
func (r *Reactor) Prepare(cfg QueueConfig) (*Queue, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if !cfg.receiving && !hasType(&r.device, cfg.Type) {
		return nil, fmt.Errorf("%w: queue pairs of type %v: %w", ErrConfig, cfg.Type, verbs.ErrNotSupported)
	}
	if err := r.fit(&cfg); err != nil {
		return nil, err
	}
	sends := cfg.sends()
	links := ring.NewLinks(cfg.slots())
	q := &Queue{r: r, cfg: cfg, firstRecv: uint32(cfg.firstRecv()), links: links, order: order{links: links}, requests: cfg.requests()}
	if !cfg.receiving {
		q.sendStack, q.sendFree = ring.NewIndexStack(links), ring.NewSlots(links[:cfg.SendDepth])
	}
	if cfg.RecvDepth > 0 {
		q.recvStack, q.recvFree = ring.NewIndexStack(links), ring.NewFreeList(links[cfg.firstRecv():])
	}
	if cfg.ControlDepth > 0 {
		q.ctrlFree = ring.NewFreeList(links[cfg.SendDepth+1 : sends])
	}
	gen := r.generation.Add(1) * genStride
	key := slabKey{pd: cfg.PD, maxSGE: cfg.MaxSGE}
	if !cfg.receiving {
		key.maxSGE = max(cfg.MaxSGE+1, cfg.RecvSGE) // 1 for Payload.Header
		key.inline, key.sends = cfg.Inline, true
	}
	q.tab = newTable(cfg.slots(), r.joinSlab(key), gen)
	q.rec = newRecorder(cfg.Recorder, cfg.slots())
	q.failed.shut()
	return q, nil
}

// Admit assigns the queue an id and reserves room for it in the completion queues. After that the
// caller makes the queue pair with the attributes of InitAttr and calls Bind; Release ends the
// queue. Only the holder may call Admit.
//
// Errors:
//   - ErrTooMany: the reactor has too many queues, or they leave too little room in a completion
//     queue.
//   - ErrConfig: the requests of the queue would not fit even in an empty completion queue.
//   - ErrClosed: the reactor is closed.
//   - If a completion queue is dead: the cause.
func (q *Queue) Admit() error {
	r := q.r
	r.reclaimForRoom(q.cfg.sends(), q.cfg.RecvDepth)
	switch {
	case r.closed.Load():
		return ErrClosed
	case len(r.freeIDs) == 0 && len(r.queues) == maxQueues:
		return fmt.Errorf("%w: %d queues", ErrTooMany, maxQueues)
	}
	for _, s := range r.cqs {
		if s.dead {
			return s.why
		}
	}
	if err := q.reserveCQEntries(); err != nil {
		return err
	}
	if n := len(r.freeIDs); n > 0 {
		q.id, r.freeIDs = r.freeIDs[n-1], r.freeIDs[:n-1]
		r.queues[q.id] = q
	} else {
		q.id = uint32(len(r.queues))
		r.queues = append(r.queues, q)
	}
	r.live++
	r.armRecheck()
	return nil
}

// InitAttr returns the attributes of the queue pair to make for this queue. Call it after Admit, and after
// Bind of a SharedRecv that the queue has.
func (q *Queue) InitAttr() *verbs.QPInitAttr {
	if s := q.cfg.Shared; s != nil {
		// A shared receive completes on the completion queue of the queue pair that takes it. So all these
		// queue pairs have the one in which the SharedRecv has reserved its entries.
		q.recvCQ = s.q.recvCQ
	}
	return &verbs.QPInitAttr{
		SendCQ: q.sendCQ.cq, RecvCQ: q.recvCQ.cq, Type: q.cfg.Type, UserData: uint64(q.id), SRQ: q.cfg.Shared.srq(),
		Cap: q.cfg.cap(), Windows: q.cfg.Windows,
	}
}

// Bind gives the queue its queue pair and the capabilities that the device granted. While only one
// goroutine knows the queue, this goroutine may call Bind. Otherwise only the holder may call Bind.
func (q *Queue) Bind(qp verbs.QP, granted verbs.QPCap) {
	q.qp, q.qpn = qp, qp.Num()
	q.inline = min(q.cfg.Inline, int(granted.MaxInlineData))
	q.failed.open() // publishes the fields set above to submitters
}

// Inline is the largest number of inline bytes of a request.
func (q *Queue) Inline() int { return q.inline }

// name returns the name of the queue pair or shared receive queue, for error messages.
func (q *Queue) name() string {
	if q.srq != nil {
		return q.srq.String()
	}
	return q.qp.String()
}

// QP is the queue pair; nil before Bind.
func (q *Queue) QP() verbs.QP { return q.qp }

// Err returns the reason why the queue accepts no requests, or nil if it accepts them.
func (q *Queue) Err() error { return q.failed.get() }

// Fail makes the queue refuse further requests with an error that wraps cause, and wakes the
// submitters that wait for a slot. The caller must also move the queue pair to ERR, so that
// outstanding requests are flushed. A later Fail does not replace the cause. Any goroutine may call
// Fail.
func (q *Queue) Fail(cause error) {
	q.failed.set(fmt.Errorf("%w: %w", ErrQueueFailed, cause))
	q.shut()
}

// shut ends all waits for a slot. The caller must first set q.failed.
func (q *Queue) shut() {
	if q.sendFree != nil {
		q.sendFree.Close()
	}
}

// Seal stops the posting of sends and receives. The caller must have called Fail; unposted requests
// end with the cause given to Fail. No pass touches the queue pair after Seal. An owner needs Seal
// in two cases: it destroys objects that requests name (memory windows, address handles) before the
// queue pair, or it destroys the queue pair without holding the turn. Only the holder may call Seal.
func (q *Queue) Seal() { q.sealed = true }

// OnFail sets the function that the reactor calls at the first failure of the queue, with the turn
// held. A failure is a failed completion, a dead completion queue, a panic of a sink, or a marker or
// probe that the device refused. A flushed completion does not count as a failure: see OnFlush. Call
// OnFail before Bind.
func (q *Queue) OnFail(fn func(error)) { q.onFail = fn }

// OnFlush sets the function that the reactor calls at the first flushed completion of a queue that
// has not failed, with the turn held. The queue pair is then in ERR. An event of the connection
// manager or an asynchronous event may tell the reason later, but it is possible that no event comes.
// Call OnFlush before Bind.
func (q *Queue) OnFlush(fn func()) { q.onFlush = fn }

// failure is the reason why a queue accepts no requests.
//
//	errNotOpen ──open──> nil ──set──> the cause, which stays
//	     └─────────────set────────────^
type failure struct {
	// err is errNotOpen until Bind sets it to nil, which publishes the queue pair. The first Fail
	// sets it to the cause. Submitters read err.
	err atomic.Pointer[error]
}

// errNotOpen is the error of a queue that is not open yet.
var errNotOpen = fmt.Errorf("%w: %w", ErrRequest, errUnbound)

func (f *failure) shut() { f.err.Store(&errNotOpen) }
func (f *failure) open() { f.err.CompareAndSwap(&errNotOpen, nil) }

// set stores err as the cause and returns true. If there is a cause already, set returns false. The
// third attempt repeats the first, because Bind may call open between the first two attempts.
func (f *failure) set(err error) bool {
	return f.err.CompareAndSwap(nil, &err) || f.err.CompareAndSwap(&errNotOpen, &err) || f.err.CompareAndSwap(nil, &err)
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
