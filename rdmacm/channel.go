package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// EventChannel delivers the events of identifiers. All methods may be called from any goroutine.
//
// Implements: struct rdma_event_channel.
type EventChannel struct {
	lib  *Library
	cm   verbs.CMChannel
	key  uint32
	bell chan struct{} // see sleeper.attach

	// mu guards the fields below. A goroutine that holds it may take and acknowledge events of the provider, which
	// does not wait, and makes no other calls of the provider.
	mu      sync.Mutex
	own     []*Event // events of putEvent that are not taken yet
	ids     int      // identifiers that report here
	closing int      // calls of between that are in progress
	closed  bool
}

// CreateEventChannel makes a channel. The caller destroys it. It does not block.
//
// Implements: rdma_create_event_channel.
func (l *Library) CreateEventChannel() (*EventChannel, error) {
	cm, err := l.provider.CreateCMChannel()
	if err != nil {
		return nil, err
	}
	ch := &EventChannel{lib: l, cm: cm}
	if ch.key, ch.bell, err = l.sleeper.attach(cm); err != nil {
		return nil, errors.Join(err, cm.Close())
	}
	return ch, nil
}

// Destroy destroys the channel. While identifiers report to it, Destroy returns verbs.ErrBusy; the C
// function has no result, and the program must not destroy such a channel. A GetEvent that waits
// returns verbs.ErrClosed. Destroy is idempotent.
//
// Implements: rdma_destroy_event_channel.
func (ch *EventChannel) Destroy() error {
	if ch == nil {
		return errNil("rdma_destroy_event_channel")
	}
	if last, err := ch.close(); !last || err != nil {
		return err
	}
	return errors.Join(ch.lib.sleeper.detach(ch.key), ch.cm.Close())
}

// close has all calls from now on find the channel closed, and reports whether it was open.
func (ch *EventChannel) close() (was bool, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return false, nil
	}
	if ch.ids > 0 {
		return true, failure("rdma_destroy_event_channel", nil, syscall.EBUSY, fmt.Errorf("%w: %d identifiers report to the channel", verbs.ErrBusy, ch.ids))
	}
	ch.closed = true
	ring(ch.bell)
	return true, nil
}

// join counts one more identifier that reports to ch.
func (ch *EventChannel) join() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return verbs.ErrClosed
	}
	ch.ids++
	return nil
}

// leave undoes join, and removes the events of putEvent for id that are not taken yet.
func (ch *EventChannel) leave(id *ID) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.leaveLocked(id)
}

// leaveLocked is leave that returns the events. The caller holds ch.mu.
func (ch *EventChannel) leaveLocked(id *ID) (own []*Event) {
	ch.ids--
	ch.own = slices.DeleteFunc(ch.own, func(ev *Event) bool {
		if ev.ID == id {
			own = append(own, ev)
		}
		return ev.ID == id
	})
	return own
}

// put adds events that leaveLocked has returned.
func (ch *EventChannel) put(own []*Event) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.own = append(ch.own, own...); len(own) > 0 {
		ring(ch.bell)
	}
}

// Event is an event of an identifier. The program must call Ack once for each event.
//
// Implements: struct rdma_cm_event.
type Event struct {
	Type     verbs.CMEventType
	ID       *ID // for CONNECT_REQUEST a new identifier, which the program must destroy
	ListenID *ID // CONNECT_REQUEST: the listener
	// Status is 0, a negative errno, or for REJECTED the reason of the rejection.
	Status int
	Conn   verbs.ConnParam // port space TCP; PrivateData may be longer than what the peer sent, padded with zeros
	UD     verbs.UDParam   // port space UDP, and MULTICAST_JOIN
	// Arg is the argument of WriteEvent, the context of the JoinMulticast that a MULTICAST_ event
	// answers, or for ADDRINFO_ERROR the resolver's error.
	Arg any

	join  uint64      // MULTICAST_: the number of the join; see joins
	acked atomic.Bool // set by Ack
}

// Err returns the error that the event reports, or nil: *RejectedError with ECONNREFUSED for REJECTED, and
// otherwise the errno of Status.
func (e *Event) Err() error {
	switch {
	case e.Type == verbs.CMRejected: // the peer chooses the reason, and may choose 0
		return failure("rdma_connect", e.ID, syscall.ECONNREFUSED, &RejectedError{Reason: e.Status, PrivateData: e.Conn.PrivateData})
	case e.Status == 0:
		return nil
	}
	return failure(e.Type.String(), e.ID, syscall.Errno(max(e.Status, -e.Status)), nil)
}

// Ack acknowledges the event. Until then Destroy and MigrateID of the identifier wait. Private data
// stays valid: it is a copy. A second call has no effect.
//
// Implements: rdma_ack_cm_event.
func (e *Event) Ack() {
	if e.acked.Swap(true) {
		return
	}
	e.ID.unacked.done()
	if e.ListenID != nil {
		e.ListenID.unacked.done()
	}
}

// GetEvent returns the channel's oldest event. Events of WriteEvent and ResolveAddrInfo come before those of the
// provider. GetEvent waits until there is an event or ctx ends.
//
// Implements: rdma_get_cm_event.
func (ch *EventChannel) GetEvent(ctx context.Context) (*Event, error) {
	if ch == nil {
		return nil, errNil("rdma_get_cm_event")
	}
	if ctx == nil {
		return nil, ErrNilContext
	}
	done := ctx.Done()
	for {
		ev, err := ch.take()
		if ev != nil {
			ring(ch.bell) // there may be more events, for other goroutines
			return ev, nil
		}
		if err == nil {
			err = ch.rearm()
		}
		if err != nil {
			ring(ch.bell)
			return nil, err
		}
		select {
		case <-ch.bell:
		case <-done:
			return nil, ctx.Err()
		}
	}
}

// TryGetEvent is GetEvent that returns nil at once if there is no event.
//
// Implements: rdma_get_cm_event on a non-blocking descriptor.
func (ch *EventChannel) TryGetEvent() (*Event, error) {
	if ch == nil {
		return nil, errNil("rdma_get_cm_event")
	}
	ev, err := ch.take()
	if ev != nil {
		ring(ch.bell) // as in GetEvent
	}
	return ev, err
}

// Ready asks for one value in the channel that it returns, for a select: the value comes when there is an event, at once
// if there is one already, and when Destroy is called. Then take events with TryGetEvent until it returns nil, and call
// Ready again. The value may come without an event. All calls return the same channel, which GetEvent uses too: so
// select in one goroutine, and call GetEvent in none. It does not block. After Destroy the error is verbs.ErrClosed.
//
// Implements: the member fd of struct rdma_event_channel.
func (ch *EventChannel) Ready() (<-chan struct{}, error) {
	if ch == nil {
		return nil, errNil("rdma_get_cm_event")
	}
	if err := ch.rearm(); err != nil {
		return nil, named("rdma_get_cm_event", nil, err)
	}
	return ch.bell, nil
}

// rearm has the bell ring when there is an event, or the channel is closed. While a call of between is in progress that
// is its end: an event of the provider could not be taken before.
func (ch *EventChannel) rearm() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.closed:
		return failure("rdma_get_cm_event", nil, syscall.EBADF, verbs.ErrClosed)
	case len(ch.own) > 0:
		ring(ch.bell)
	}
	if ch.closing > 0 {
		return nil
	}
	return ch.lib.sleeper.poller.Rearm(ch.key)
}

// WriteEvent puts an event of type USER or INTERNAL into the channel of id, for a goroutine in
// GetEvent. Event.Status and Event.Arg are status and arg. It does not block. Not proven on a device:
// the event does not pass through the kernel.
//
// Implements: rdma_write_cm_event.
func (id *ID) WriteEvent(t verbs.CMEventType, status int, arg any) error {
	if id == nil {
		return errNil("rdma_write_cm_event")
	}
	if t != verbs.CMUser && t != verbs.CMInternal {
		return failure("rdma_write_cm_event", id, syscall.EINVAL, verbs.ErrInvalid)
	}
	return id.putEvent("rdma_write_cm_event", t, status, arg)
}

// putEvent puts an event into the channel of id, unless id is destroyed.
func (id *ID) putEvent(op string, t verbs.CMEventType, status int, arg any) error {
	ch := id.channel()
	ch.mu.Lock()
	for now := id.channel(); now != ch; now = id.channel() { // MigrateID came between the two
		ch.mu.Unlock()
		ch = now
		ch.mu.Lock()
	}
	defer ch.mu.Unlock()
	if ch.lib.id(id.number) != id || ch.closed {
		return failure(op, id, syscall.EBADF, verbs.ErrClosed)
	}
	ch.own = append(ch.own, &Event{Type: t, ID: id, Status: status, Arg: arg})
	ring(ch.bell)
	return nil
}

// take returns the oldest event, or nil if there is none. While a call of between is in progress it takes no event of the
// provider.
func (ch *EventChannel) take() (*Event, error) {
	for {
		ev, unwanted, err := ch.takeOne()
		if unwanted == nil {
			return ev, err
		}
		if err = errors.Join(err, ch.between(unwanted.Close)); err != nil {
			return nil, err
		}
	}
}

// takeOne is take, but leaves it to the caller to close an identifier whose listener is not there any more.
func (ch *EventChannel) takeOne() (ev *Event, unwanted verbs.CMID, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil, nil, failure("rdma_get_cm_event", nil, syscall.EBADF, verbs.ErrClosed)
	}
	if len(ch.own) > 0 {
		ev := ch.own[0]
		ch.own = ch.own[1:]
		ev.ID.unacked.add()
		return ev, nil, nil
	}
	if ch.closing > 0 {
		return nil, nil, nil
	}
	for {
		raw, ok, err := ch.cm.GetEvent()
		if err != nil || !ok {
			return nil, nil, err
		}
		ev, unwanted, err := ch.translate(&raw)
		if ev != nil || unwanted != nil {
			return ev, unwanted, err
		}
	}
}

// between calls fn while no goroutine is between taking an event from the provider and acknowledging it
// there: the provider refuses to close or move an identifier then. fn may wait in the kernel, so mu is not held: other
// calls of the channel find no event of the provider meanwhile, and the bell rings when fn has returned.
func (ch *EventChannel) between(fn func() error) error {
	ch.mu.Lock()
	ch.closing++
	ch.mu.Unlock()
	defer func() {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		ch.closing--
		ring(ch.bell)
	}()
	return fn()
}

// translate makes the event of raw, which it acknowledges. It returns nil for an event of an identifier
// that is being destroyed, and the new identifier of a request that has no listener any more, which the caller closes.
func (ch *EventChannel) translate(raw *verbs.CMEvent) (_ *Event, unwanted verbs.CMID, err error) {
	ev := &Event{Type: raw.Type, Status: raw.Status, Conn: raw.Conn, UD: raw.UD, join: raw.UserData}
	ev.Conn.PrivateData, ev.UD.PrivateData = bytes.Clone(raw.Conn.PrivateData), bytes.Clone(raw.UD.PrivateData)
	ch.cm.Ack(*raw)
	if raw.Type == verbs.CMConnectRequest {
		listener := ch.lib.id(raw.ListenID.UserData())
		if listener == nil {
			return nil, raw.ID, nil
		}
		id, err := listener.child(raw.ID, ch)
		if err != nil {
			return nil, raw.ID, err
		}
		ev.ID, ev.ListenID = id, listener
		listener.unacked.add()
		id.unacked.add()
		return ev, nil, nil
	}
	if ev.ID = ch.lib.id(raw.ID.UserData()); ev.ID == nil {
		return nil, nil, nil
	}
	ev.ID.unacked.add()
	ev.ID.noted(ev)
	return ev, nil, nil
}

// unacked counts the events of an identifier that are taken and not acknowledged.
type unacked struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n becomes 0; nil while no goroutine waits
}

func (u *unacked) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
}

func (u *unacked) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.zero != nil {
		close(u.zero)
		u.zero = nil
	}
}

// wait waits until all events are acknowledged, or ctx ends.
func (u *unacked) wait(ctx context.Context) error {
	for {
		u.mu.Lock()
		if u.n == 0 {
			u.mu.Unlock()
			return nil
		}
		if u.zero == nil {
			u.zero = make(chan struct{})
		}
		zero := u.zero
		u.mu.Unlock()
		select {
		case <-zero:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
