package actor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// outbox holds operations of one actor on one connection that had no room for them, in the order of
// the calls of Start. While the outbox is not empty, the feeding goroutine waits for room and starts
// the operations.
//
//	         Start, no room: queued
//	idle ────────────────────────────> feeding ──┐ Start: queued
//	│  ^                                │    ^   │
//	│  └────────────────────────────────┘    └───┘
//	│            queue is empty
//	Start, room: started at once
type outbox struct {
	conn *verbena.Conn
	ctx  context.Context // the context of the instance (core.life)

	mu      sync.Mutex // guards the fields below; never held while waiting
	waiting []waitingOp
	feeding bool
}

type waitingOp struct {
	op verbena.Op
	e  *event
}

// Start starts an operation on conn. The handler gets the outcome as a Completion with the given tag.
// Start never blocks: if the connection has no room for the operation, the operation starts later.
// The operations of one actor on one connection start in the order of the calls.
//
// The memory that op names must stay valid until the Completion. If Start returns an error, nothing
// was started, and no Completion comes. Errors: ErrTooMany if Options.Operations operations are
// outstanding; ErrConfig for a nil connection; those of Conn.TryStartTo, except ErrQueueFull,
// ErrNoCredit, ErrPieces and ErrNoBuffer.
func (c *Context[M]) Start(conn *verbena.Conn, tag uint64, op verbena.Op) error {
	a := &c.cell.core
	if conn == nil {
		return fmt.Errorf("%w: no connection", ErrConfig)
	}
	if a.operations() >= a.opt.Operations {
		return ErrTooMany
	}
	e := a.newEvent(evCompletion, tag)
	e.conn = conn
	o := a.outboxes[conn]
	if o != nil && o.append(op, e) {
		return nil
	}
	err := conn.TryStartTo(&op, e, tag)
	if !errors.Is(err, verbena.ErrQueueFull) && !errors.Is(err, verbena.ErrPieces) && !errors.Is(err, verbena.ErrNoBuffer) {
		if err != nil {
			a.freeEvent(e)
		}
		return err
	}
	if o == nil {
		o = &outbox{conn: conn, ctx: a.life.Load()}
		if a.outboxes == nil {
			a.outboxes = map[*verbena.Conn]*outbox{}
		}
		for old, box := range a.outboxes { // remove idle outboxes
			if box.idle() {
				delete(a.outboxes, old)
			}
		}
		a.outboxes[conn] = o
	}
	o.feed(op, e)
	return nil
}

// append queues op for the feeding goroutine. If this goroutine does not run, append returns false.
func (o *outbox) append(op verbena.Op, e *event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.feeding {
		return false
	}
	o.waiting = append(o.waiting, waitingOp{op.Keep(), e})
	return true
}

// feed queues op and starts the feeding goroutine, which must not be running. Runner only.
func (o *outbox) feed(op verbena.Op, e *event) {
	o.mu.Lock()
	o.waiting = append(o.waiting, waitingOp{op.Keep(), e})
	o.feeding = true
	o.mu.Unlock()
	go func() {
		for {
			w, ok := o.next()
			if !ok {
				return
			}
			err := o.ctx.Err() // if there is room, StartTo succeeds even if the context has ended
			if err == nil {
				err = o.conn.StartTo(o.ctx, &w.op, w.e, w.e.tag)
			}
			if err != nil {
				w.e.Complete(verbena.SinkContext{}, verbena.Result{Tag: w.e.tag}, o.why(err))
			}
		}
	}()
}

func (o *outbox) next() (w waitingOp, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.waiting, o.feeding = nil, false
		return w, false
	}
	w = o.waiting[0]
	o.waiting[0] = waitingOp{}
	o.waiting = o.waiting[1:]
	return w, true
}

func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.feeding
}

// why returns err, joined with the reason of the end of the instance if it is ending: its context fails
// the operations that wait.
func (o *outbox) why(err error) error {
	if o.ctx.Err() != nil {
		return errors.Join(context.Cause(o.ctx), err)
	}
	return err
}
