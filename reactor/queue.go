package reactor

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
)

// Queue is a queue pair attached to a reactor.
//
//	 NewQueue          Bind              Fail, or a failed completion      Release
//	──────────> unbound ────> open ──────────────────────────> failed ──────────────> released
//	                            └──────────────────────────────────────────────────────^
//
// Only an open queue accepts requests. A failed queue refuses
// both with its cause; what is out is flushed by the device and completes. A
// released queue is gone: what was still out has completed with the cause.
type Queue struct {
	r      *Reactor
	cfg    QueueConfig
	id     uint32
	qp     verbs.QP
	qpn    uint32
	mr     verbs.MR
	tab    *table
	inline int // bytes the device granted
	failed failure

	hook      ring.Hook[Queue]
	sendStack *ring.IndexStack
	recvStack *ring.IndexStack // nil without receives
	sendFree  *ring.FreeList
	recvFree  *ring.FreeList
	credits   *ring.Credits // sends: taken by submitters, released by the holder

	// The holder's.
	order    fifo        // posted sends, oldest first
	recvs    int         // posted receives
	sincesig int         // sends posted since the last signaled one
	marker   bool        // the marker is out
	released bool        //
	retired  []uint32    // scratch: slots freed in one dispatch
	idle     []func()    // called when nothing is out any more
	onFail   func(error) // called once, at the first failed completion
}

// InboxHook links the queue into its reactor's ready list.
func (q *Queue) InboxHook() *ring.Hook[Queue] { return &q.hook }

// NewQueue reserves room for a queue: completion queue entries, slots, off-heap
// memory, registered in cfg.PD. Its queue pair is made from InitAttr and given to
// Bind. It holds the turn for a moment and may be called from any goroutine but
// the turn's.
func (r *Reactor) NewQueue(cfg QueueConfig) (*Queue, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	sends := cfg.SendDepth + 1 // and the marker
	q := &Queue{r: r, cfg: cfg, credits: ring.NewCredits(cfg.SendDepth), order: newFIFO(sends),
		sendStack: ring.NewIndexStack(sends), sendFree: ring.NewFreeList(cfg.SendDepth)}
	if cfg.RecvDepth > 0 {
		q.recvStack = ring.NewIndexStack(sends + cfg.RecvDepth)
		q.recvFree = ring.NewFreeList(cfg.RecvDepth)
	}
	gen := uint32(r.generation.Add(1)) * genStride
	if q.tab, err = newTable(sends, cfg.RecvDepth, cfg.MaxSGE, cfg.Inline, r.cfg.Node, gen); err != nil {
		return nil, err
	}
	q.mr, err = cfg.PD.RegMR(q.tab.arena.Addr(), uint64(q.tab.arena.Len()), q.tab.arena.Addr(), verbs.AccessLocalWrite)
	if err != nil {
		return nil, joinUnmap(err, q.tab)
	}
	r.tok.WithTurn(func() { err = r.admit(q) })
	if err != nil {
		if cerr := q.mr.Close(); cerr != nil {
			return nil, fmt.Errorf("%w; and %w", err, cerr)
		}
		return nil, joinUnmap(err, q.tab)
	}
	return q, nil
}

func joinUnmap(err error, t *table) error {
	if uerr := t.arena.Unmap(); uerr != nil {
		return fmt.Errorf("%w; and %w", err, uerr)
	}
	return err
}

// admit gives q a number and room in the completion queues. Holder only.
func (r *Reactor) admit(q *Queue) error {
	switch {
	case r.closed.Load():
		return ErrClosed
	case r.sendRoom < q.cfg.SendDepth+1:
		return fmt.Errorf("%w: %d sends wanted, the completion queue has room for %d of %d (Config.CQEntries)",
			ErrTooMany, q.cfg.SendDepth+1, r.sendRoom, r.cfg.CQEntries)
	case r.recvRoom < q.cfg.RecvDepth:
		return fmt.Errorf("%w: %d receives wanted, the completion queue has room for %d of %d (Config.CQEntries)",
			ErrTooMany, q.cfg.RecvDepth, r.recvRoom, r.cfg.CQEntries)
	}
	if n := len(r.freeIDs); n > 0 {
		q.id, r.freeIDs = r.freeIDs[n-1], r.freeIDs[:n-1]
		r.queues[q.id] = q
	} else if len(r.queues) < maxQueues {
		q.id = uint32(len(r.queues))
		r.queues = append(r.queues, q)
	} else {
		return fmt.Errorf("%w: %d queues", ErrTooMany, maxQueues)
	}
	r.sendRoom -= q.cfg.SendDepth + 1
	r.recvRoom -= q.cfg.RecvDepth
	r.live++
	return nil
}

// InitAttr describes the queue pair to make for this queue.
func (q *Queue) InitAttr(t verbs.QPType) *verbs.QPInitAttr {
	return &verbs.QPInitAttr{
		SendCQ: q.r.sendCQ.cq, RecvCQ: q.r.recvCQ.cq, Type: t, UserData: uint64(q.id),
		Cap: verbs.QPCap{
			MaxSendWR: uint32(q.cfg.SendDepth + 1), MaxRecvWR: uint32(q.cfg.RecvDepth),
			MaxSendSGE: uint32(q.cfg.MaxSGE), MaxRecvSGE: uint32(q.cfg.MaxSGE),
			MaxInlineData: uint32(q.cfg.Inline),
		},
	}
}

// Bind gives the queue its queue pair and what the device granted. It may be called from the turn, or before anybody
// else knows the queue.
func (q *Queue) Bind(qp verbs.QP, granted verbs.QPCap) {
	q.qp, q.qpn = qp, qp.Num()
	q.inline = min(q.cfg.Inline, int(granted.MaxInlineData))
}

// Inline is how many bytes a request may carry in itself.
func (q *Queue) Inline() int { return q.inline }

// QP is the queue pair; nil before Bind.
func (q *Queue) QP() verbs.QP { return q.qp }

// Err is why the queue takes no more requests; nil while it does.
func (q *Queue) Err() error { return q.failed.get() }

// SendDepth is how many sends may be outstanding.
func (q *Queue) SendDepth() int { return q.cfg.SendDepth }

// RecvDepth is how many receives may be outstanding.
func (q *Queue) RecvDepth() int { return q.cfg.RecvDepth }

// Fail makes the queue refuse requests with cause and wakes those that wait
// for room. It does not touch the queue pair: whoever calls it moves that to
// ERR, so that what is out is flushed. The first cause stays. Any goroutine.
func (q *Queue) Fail(cause error) {
	q.failed.set(fmt.Errorf("%w: %w", ErrQueueFailed, cause))
	q.credits.Close()
}

// OnFail has fn called once, holding the turn, at the first completion that
// failed. It must be set before Bind.
func (q *Queue) OnFail(fn func(error)) { q.onFail = fn }

// Idle calls fn, holding the turn, as soon as nothing of the queue is out with
// the device. Holder only.
func (q *Queue) Idle(fn func()) {
	q.idle = append(q.idle, fn)
	q.checkIdle()
}

func (q *Queue) out() int { return q.order.len() + q.recvs }

func (q *Queue) checkIdle() {
	for len(q.idle) > 0 && q.out() == 0 {
		fn := q.idle[0]
		q.idle = q.idle[1:]
		fn()
	}
}

// Release ends the queue. Its queue pair must have been destroyed: the device
// touches no memory of it any more. What is still out completes with cause;
// late completions find no queue and are dropped. Holder only; idempotent.
func (q *Queue) Release(cause error) error {
	if q.released {
		return nil
	}
	q.failed.set(fmt.Errorf("%w: %w", ErrQueueClosed, cause))
	q.credits.Close()
	q.released = true
	r := q.r
	for q.order.len() > 0 {
		q.finish(q.order.pop(), Completion{}, q.failed.get())
	}
	for i := q.cfg.SendDepth + 1; i < len(q.tab.slots); i++ {
		if q.tab.slots[i].posted {
			q.finish(uint32(i), Completion{Kind: KindRecv}, q.failed.get())
		}
	}
	q.freeRetired()
	q.checkIdle()
	r.queues[q.id] = nil
	r.freeIDs = append(r.freeIDs, q.id)
	r.sendRoom += q.cfg.SendDepth + 1
	r.recvRoom += q.cfg.RecvDepth
	r.live--
	r.graves = append(r.graves, q)
	r.sweep()
	return nil
}
