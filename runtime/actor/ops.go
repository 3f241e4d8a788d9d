package actor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// outbox holds operations of one actor that one connection had no room for, in
// their order. A goroutine feeds them while there are any: it waits for room, in the
// place of the handler.
//
//	        no room                    empty
//	empty ──────────> feeding ───────────────────> empty
//	 │ room: at once     │ more: behind the others
type outbox struct {
	conn *verbena.Conn
	ctx  context.Context // of the instance

	mu      sync.Mutex // guards what follows; never held while waiting
	waiting []waitingOp
	feeding bool
	dropped error // why nothing is fed any more
}

type waitingOp struct {
	op verbena.Op
	e  *event
}

// Start starts an operation on conn; its outcome comes as a Completion with tag.
// It never waits: an operation for which the connection has no room goes when there
// is, after those of this actor that were started before. So the operations of one
// actor on one connection start in the order of the calls.
//
// The memory that op names must stay until the Completion. An error means
// that nothing was started, and no Completion comes: what the method that op
// stands for says, or ErrTooMany.
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
	if !errors.Is(err, verbena.ErrQueueFull) && !errors.Is(err, verbena.ErrPieces) {
		if err != nil {
			a.freeEvent(e)
		}
		return err
	}
	if o == nil {
		o = &outbox{conn: conn, ctx: a.life}
		if a.outboxes == nil {
			a.outboxes = map[*verbena.Conn]*outbox{}
		}
		for old, box := range a.outboxes { // those that have done their work
			if box.idle() {
				delete(a.outboxes, old)
			}
		}
		a.outboxes[conn] = o
	}
	o.feed(op, e)
	return nil
}

// append puts op behind others that wait; false: none does.
func (o *outbox) append(op verbena.Op, e *event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.feeding {
		return false
	}
	o.waiting = append(o.waiting, waitingOp{op.Keep(), e})
	return true
}

// feed begins feeding with op. Runner only: so nobody else has begun.
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
			err := o.ctx.Err() // with it ended, room that is there would still be taken
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

// drop has what waits complete with cause; the instance's context has ended, so
// the feeder comes to it.
func (o *outbox) drop(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = cause
}

// why is err, or what ended the instance and so the wait.
func (o *outbox) why(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped != nil {
		return errors.Join(o.dropped, err)
	}
	return err
}
