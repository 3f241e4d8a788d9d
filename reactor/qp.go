package reactor

import (
	"errors"
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
// Only an open queue accepts requests. A failed queue refuses sends and receives with its cause;
// the device flushes the outstanding ones, which then complete. Release completes all remaining
// requests with the cause.
type Queue struct {
	r      *Reactor
	cfg    QueueConfig
	id     uint32
	qp     verbs.QP
	qpn    uint32
	srq    verbs.SRQ // of a SharedRecv, which has no queue pair
	mr     verbs.MR
	tab    *table
	rec    *recorder // nil: off
	inline int       // bytes the device granted
	// requests is requestsOf[cfg.Type], copied because a map lookup for each request is too slow.
	requests verbs.OpcodeSet
	failed   failure

	hook ring.Hook[readyQueue]
	// queued is set if the queue is on the ready list, or about to be. A submitter calls Enter
	// after its push, the holder calls Leave before it takes the stacks. (PostRecvLater pushes
	// without Enter.)
	queued    ring.Listed
	sendStack *ring.IndexStack
	recvStack *ring.IndexStack // nil without receives
	sendFree  *ring.Slots      // each slot is room for one request in the send queue
	recvFree  *ring.FreeList   // nil without receives; sendFree is nil without sends
	ctrlFree  *ring.FreeList   // nil without control sends

	// The holder's.
	backlog      backlog
	order        fifo         // posted sends, oldest first
	recvs        int          // posted receives
	peerReceives uint32       // receives ever completed, and those noted by NotePeerReceive; it wraps
	localSends   uint32       // BIND_MW and LOCAL_INV ever completed; it wraps
	peerLimit    *peerLimit   // nil: see SetPeerLimit
	progressMark progressMark // see Stuck
	sincesig     int          // sends posted since the last signaled one
	marker       bool         // the marker is outstanding
	released     bool         // see Release
	sealed       bool         // see Seal
	releaseErr   error        // the error with which Release ended requests
	retired      []uint32     // scratch: slots freed in one dispatch
	// Of a quarantined queue: the pass it was released in, and the slots collected.
	quarantinedAt                                  uint64
	reclaimedSends, reclaimedRecvs, reclaimedCtrls int
	idle                                           []idleCall  // called in order, when idle
	onFail                                         func(error) // called at the first failed completion
	onFlush                                        func()      // called at the first flush without a cause
}

// Prepare makes a queue's slots and off-heap memory and registers the memory in cfg.PD. Any
// goroutine may call it, without the turn. Discard gives back a queue that is not admitted.
func (r *Reactor) Prepare(cfg QueueConfig) (*Queue, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if !cfg.receiving && !hasType(&r.device, cfg.Type) {
		return nil, fmt.Errorf("%w: queue pairs of type %v: %w", ErrConfig, cfg.Type, verbs.ErrNotSupported)
	}
	sends := cfg.sends()
	q := &Queue{r: r, cfg: cfg, order: newFIFO(sends), requests: requestsOf[cfg.Type]}
	if !cfg.receiving {
		q.sendStack, q.sendFree = ring.NewIndexStack(sends), ring.NewSlots(cfg.SendDepth)
	}
	if cfg.RecvDepth > 0 {
		q.recvStack = ring.NewIndexStack(sends + cfg.RecvDepth)
		q.recvFree = ring.NewFreeList(cfg.RecvDepth)
	}
	if cfg.ControlDepth > 0 {
		q.ctrlFree = ring.NewFreeList(cfg.ControlDepth)
	}
	gen := r.generation.Add(1) * genStride
	if sge := r.device.MaxSGE; sge > 0 && cfg.MaxSGE+1 > sge {
		return nil, fmt.Errorf("%w: MaxSGE is %d, the device takes %d less one for the header", ErrConfig, cfg.MaxSGE, sge)
	}
	if q.tab, err = newTable(sends, cfg.RecvDepth, cfg.MaxSGE, cfg.Inline, r.cfg.Node, gen); err != nil {
		return nil, err
	}
	a := q.tab.arena
	if q.mr, err = cfg.PD.RegMR(a.Addr(), uint64(a.Len()), a.Addr(), verbs.AccessLocalWrite); err != nil {
		return nil, errors.Join(err, a.Unmap())
	}
	q.rec = newRecorder(cfg.Recorder, len(q.tab.slots))
	q.failed.shut()
	return q, nil
}

// Admit assigns the queue an id and reserves room in the completion queues. It returns ErrTooMany
// while other Queues occupy the room, and ErrConfig if there can never be enough room. The caller
// then makes the queue pair from InitAttr and calls Bind. The queue ends with Release. Holder
// only.
func (q *Queue) Admit() error {
	r := q.r
	r.reclaimForRoom(q.cfg.sends(), q.cfg.RecvDepth)
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.sendCQ.dead:
		return r.sendCQ.why
	case r.recvCQ.dead:
		return r.recvCQ.why
	case len(r.freeIDs) == 0 && len(r.queues) == maxQueues:
		return fmt.Errorf("%w: %d queues", ErrTooMany, maxQueues)
	}
	if err := r.reserveCQEntries(q.cfg.sends(), q.cfg.RecvDepth); err != nil {
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

// InitAttr returns the attributes of the queue pair to make for this queue.
func (q *Queue) InitAttr() *verbs.QPInitAttr {
	return &verbs.QPInitAttr{
		SendCQ: q.r.sendCQ.cq, RecvCQ: q.r.recvCQ.cq, Type: q.cfg.Type, UserData: uint64(q.id), SRQ: q.cfg.Shared.srq(),
		Cap: verbs.QPCap{
			MaxSendWR: uint32(q.cfg.sends()), MaxRecvWR: uint32(q.cfg.RecvDepth),
			MaxSendSGE: uint32(q.cfg.MaxSGE + 1), MaxRecvSGE: uint32(q.cfg.MaxSGE),
			MaxInlineData: uint32(q.cfg.Inline),
		},
	}
}

// Bind gives the queue its queue pair and the capabilities that the device granted. The holder
// may call it, or any goroutine before another one knows the queue.
func (q *Queue) Bind(qp verbs.QP, granted verbs.QPCap) {
	q.qp, q.qpn = qp, qp.Num()
	q.inline = min(q.cfg.Inline, int(granted.MaxInlineData))
	q.failed.open() // publishes the above to submitters
}

// Inline is the largest number of inline bytes of a request.
func (q *Queue) Inline() int { return q.inline }

// name names the object that the queue posts to, for messages.
func (q *Queue) name() string {
	if q.srq != nil {
		return q.srq.String()
	}
	return q.qp.String()
}

// QP is the queue pair; nil before Bind.
func (q *Queue) QP() verbs.QP { return q.qp }

// Err returns why the queue accepts no more requests; nil while it does.
func (q *Queue) Err() error { return q.failed.get() }

// Fail makes the queue refuse requests with cause and wakes the submitters that wait for a slot.
// The caller must also move the queue pair to ERR, so that outstanding requests are flushed. A
// later Fail does not replace the cause. Any goroutine may call it.
func (q *Queue) Fail(cause error) {
	q.failed.set(fmt.Errorf("%w: %w", ErrQueueFailed, cause))
	q.shut()
}

// shut ends the slot waits. The caller has set the cause.
func (q *Queue) shut() {
	if q.sendFree != nil {
		q.sendFree.Close()
	}
}

// Seal stops all posting, of receives too: requests that are submitted and not posted complete
// with the cause of Fail, which must come before. An owner calls it before it destroys objects
// that requests name (memory windows, address handles) some time before the queue pair, or before
// it destroys the queue pair without the turn. No pass touches the queue pair after Seal. Holder
// only.
func (q *Queue) Seal() { q.sealed = true }

// OnFail has fn called once, with the turn held, at the first failure that the reactor finds: a
// failed completion, a dead completion queue, a panic of a sink, a marker or probe that the device
// refused. A flush does not count: the code that moved the queue pair to ERR knows the reason.
// Call OnFail before Bind.
func (q *Queue) OnFail(fn func(error)) { q.onFail = fn }

// OnFlush has fn called once, with the turn held, at the first flushed completion before Fail: the
// queue pair is in ERR, and the reason (of the connection manager, or of an asynchronous event)
// may follow soon, or never. Call OnFlush before Bind.
func (q *Queue) OnFlush(fn func()) { q.onFlush = fn }

// failure is the reason why a queue accepts no requests.
//
//	shut ──open──> nil ──set──> the cause, which stays
//	  └─────────────set─────────^
type failure struct {
	// err is errNotOpen until Bind sets it to nil, which publishes the queue pair. The first Fail
	// sets it to the cause. Read by submitters.
	err atomic.Pointer[error]
}

// errNotOpen is the cause of a queue that is not open yet.
var errNotOpen = fmt.Errorf("%w: %w", ErrRequest, errUnbound)

func (f *failure) shut() { f.err.Store(&errNotOpen) }
func (f *failure) open() { f.err.CompareAndSwap(&errNotOpen, nil) }

// set makes err the cause if there is none yet, and reports whether it did.
func (f *failure) set(err error) bool {
	return f.err.CompareAndSwap(nil, &err) || f.err.CompareAndSwap(&errNotOpen, &err) || f.err.CompareAndSwap(nil, &err)
}

func (f *failure) get() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
