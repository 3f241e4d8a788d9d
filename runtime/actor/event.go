package actor

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// eventKind is the kind of an event.
type eventKind uint8

const (
	evCompletion eventKind = iota // an operation has ended
	evMessage                     // a connection has a message, or no more messages come
	evConn                        // Dial or Accept has ended
	evTimer
	evDevice // in the system lane
	evChild  // in the system lane
)

// event is an input of an actor other than a message of Tell. An operation reserves its event when it
// starts. So a full mailbox cannot drop the completion, and the completion allocates nothing.
//
//	            newEvent             Complete, Received
//	free list ───────────> outstanding ────────────────> in a lane ──> handled, freed
//
// The goroutine that will push an outstanding event owns the event. The actor owns the events in its
// lanes.
type event struct {
	hook ring.Hook[event]
	next *event // in the free list
	a    *core
	kind eventKind

	tag    uint64
	conn   *verbena.Conn
	link   *link
	timer  *timer // if not nil, e is timer.e: not counted in outstanding, never in the free list
	result verbena.Result
	msg    verbena.Message
	err    error
	device verbena.DeviceEvent
	child  *core
	notice ChildEvent
}

// InboxHook returns the link in a lane.
func (e *event) InboxHook() *ring.Hook[event] { return &e.hook }

// Complete implements reactor.Sink. Any goroutine may call it; usually the holder of a reactor's turn
// does.
func (e *event) Complete(_ verbena.SinkContext, r verbena.Result, err error) {
	e.result, e.err = r, err
	e.a.push(e)
}

// Received implements verbena.MessageSink.
func (e *event) Received(m verbena.Message, err error) {
	e.msg, e.err = m, err
	e.a.push(e)
}

// lane is a queue of events. Any goroutine pushes to it; the runner takes one event at a time.
type lane struct {
	in    ring.Inbox[event, *event]
	taken *event // runner only: events taken from in and not handled yet, oldest first
}

func (l *lane) pop() *event {
	if l.taken == nil {
		if l.taken = l.in.TakeAll(); l.taken == nil {
			return nil
		}
	}
	e := l.taken
	l.taken = e.hook.Unlink()
	return e
}

// empty reports whether no event waits. Runner only.
func (l *lane) empty() bool { return l.taken == nil && l.in.Empty() }

// newEvent reserves an event that will be pushed later. Runner only.
func (a *core) newEvent(kind eventKind, tag uint64) *event {
	e := a.free
	if e == nil {
		e = &event{a: a}
	} else {
		a.free, e.next = e.next, nil
	}
	e.kind, e.tag = kind, tag
	a.outstanding++
	return e
}

// freeEvent takes back an event that was handled or discarded, or whose operation did not start.
// Runner only.
func (a *core) freeEvent(e *event) {
	*e = event{a: a, next: a.free}
	a.free = e
	a.outstanding--
}

// push puts e on the common lane. Any goroutine may call it.
func (a *core) push(e *event) { a.events.in.Push(e); a.wake() }

// pushSystem puts e on the system lane. Any goroutine may call it.
func (a *core) pushSystem(e *event) { a.system.in.Push(e); a.wake() }
