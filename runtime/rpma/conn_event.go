package rpma

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// Event is an event of a connection.
//
//	Connect ──> Established ──> Closed or Lost
//	   │
//	   └──> Rejected, Unreachable or Lost
//
// Each event comes once.
type Event int

// The events of a connection.
const (
	Undefined   Event = iota - 1 // no event: the value beside an error
	Established                  // operations may be started
	Closed                       // either end has disconnected
	Lost                         // the connection has failed, see Conn.Err, or the device is gone
	Rejected                     // the peer has refused the connection, or nothing listens there
	Unreachable                  // the peer has not answered
)

var eventTexts = map[Event]string{
	Undefined: "Undefined connection event", Established: "Connection established", Closed: "Connection closed",
	Lost: "Connection lost", Rejected: "Connection rejected", Unreachable: "Connection unreachable",
}

// String returns librpma's text.
//
// Implements: rpma_utils_conn_event_2str.
func (e Event) String() string {
	if s, ok := eventTexts[e]; ok {
		return s
	}
	return "Unsupported connection event"
}

// eventOf returns the event for the end of a connection, or of an attempt to connect. ErrConnClosed means
// that this end has disconnected.
func eventOf(err error) Event {
	_, rejected := errors.AsType[*runtime.RejectError](err)
	switch {
	case errors.Is(err, verbs.ErrDeviceRemoved):
		return Lost
	case errors.Is(err, runtime.ErrPeerClosed) || errors.Is(err, runtime.ErrConnClosed):
		return Closed
	case rejected:
		return Rejected
	case errors.Is(err, seam.ConnectError): // it is an ErrUnreachable, too
		return Lost
	case errors.Is(err, runtime.ErrUnreachable) || errors.Is(err, runtime.ErrConnectTimeout):
		return Unreachable
	}
	return Lost
}

// maxEvents is how many events a connection has.
const maxEvents = 2

// tell adds an event.
func (c *Conn) tell(e Event, err error) {
	logf(LevelNotice, e.String(), err)
	c.events <- e // never blocks: there is room for all
	c.eventBell.Signal()
}

// NextEvent waits for the next event of the connection. With an error the event is Undefined.
//
// Errors: ErrInvalid that matches runtime.ErrClosed after Close, and when Close comes meanwhile; the error of
// the context.
//
// Implements: rpma_conn_next_event.
func (c *Conn) NextEvent(ctx context.Context) (Event, error) {
	const op = "rpma_conn_next_event"
	if ctx == nil {
		return Undefined, classified(op, runtime.ErrNilContext)
	}
	if e, err := c.TryNextEvent(); err == nil {
		return e, nil
	}
	done := ctx.Done()
	select {
	case e := <-c.events:
		c.eventTaken()
		return e, nil
	case <-c.closing:
		return Undefined, fail(op, ErrInvalid, verbs.ErrClosed)
	case <-done:
		return Undefined, ctx.Err()
	}
}

// TryNextEvent is NextEvent that does not wait: without an event it returns ErrNoEvent.
//
// Implements: rpma_conn_next_event on a non-blocking descriptor.
func (c *Conn) TryNextEvent() (Event, error) {
	const op = "rpma_conn_next_event"
	if c.isClosed() {
		return Undefined, fail(op, ErrInvalid, verbs.ErrClosed)
	}
	select {
	case e := <-c.events:
		c.eventTaken()
		return e, nil
	default:
		return Undefined, fail(op, ErrNoEvent, nil)
	}
}

// eventTaken lowers the event of the descriptor, unless there is another event.
func (c *Conn) eventTaken() {
	c.eventBell.Drain()
	if len(c.events) > 0 {
		c.eventBell.Signal()
	}
}

// EventFD returns a descriptor that polls readable while there is an event. It belongs to the connection,
// and Close closes it: the program must not read or close it.
//
// Errors: ErrNotSupported where the system has no such descriptors, and after Close.
//
// Implements: rpma_conn_get_event_fd.
func (c *Conn) EventFD() (int, error) { return descriptorOf("rpma_conn_get_event_fd", c.eventBell) }
