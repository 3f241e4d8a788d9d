package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// keptEvents is the largest capacity, in events, that an empty queue keeps.
const keptEvents = 256

// cmEvent is a queued event. It belongs to the channel of listen if listen is set, otherwise to
// the channel of id.
type cmEvent struct {
	ev     verbs.CMEvent
	id     *cmID
	listen *cmID
}

// cmChannel delivers connection events.
//
// Lock order: a goroutine that holds one of these may take those below it. No goroutine waits for
// an engine while it holds one of the last two.
//
//	cmID.api          serializes the calls of an identifier; never taken during Progress
//	Provider.opening  devices join and leave the fabric; never taken during Progress
//	the port's token  Progress, or device.exclusive: the machine and the queue pair
//	cmID.mu           a listener's before its children's
//	cmChannel.mu
type cmChannel struct {
	p        *Provider
	number   uint64
	notifier *sys.Event

	mu     sync.Mutex
	queue  []cmEvent // queue[:taken] is empty
	taken  int
	ids    int // identifiers that report here and that the user has received
	closed bool
}

var _ verbs.CMChannel = (*cmChannel)(nil)

// CreateCMChannel makes a channel for connection events. It does not block. Any goroutine may use
// the channel.
//
// Implements: rdma_create_event_channel.
func (p *Provider) CreateCMChannel() (verbs.CMChannel, error) {
	bell, err := sys.NewEvent()
	if err != nil {
		return nil, opError("rdma_create_event_channel", p.Name(), 0, "%w", err)
	}
	p.cm.channels.Add(1)
	liveObjects.Add(1)
	return &cmChannel{p: p, number: p.cm.numbers.Add(1), notifier: bell}, nil
}

// cmShared is a provider's connection management state, apart from its devices' state machines.
type cmShared struct {
	ports    map[verbs.PortSpace]*cmPorts // immutable
	wild     idSet                        // listeners on all devices
	numbers  atomic.Uint64
	channels atomic.Int64 // alive
	ids      atomic.Int64 // alive, including those of requests not yet reported to the user
}

// CMObjects counts the channels and identifiers that are alive, for leak checks. They belong to
// the provider: an identifier exists before it has a device, and a channel has none.
func (p *Provider) CMObjects() verbs.ObjectCount {
	return verbs.ObjectCount{CMChannel: int(p.cm.channels.Load()), CMID: int(p.cm.ids.Load())}
}

// FD returns a descriptor that is readable while an event is queued; see [verbs.Source].
func (c *cmChannel) FD() int { return c.notifier.FD() }

// Notify sets the function to call when an event is queued and there is no descriptor; see
// [verbs.Source].
func (c *cmChannel) Notify(ring func()) { c.notifier.Notify(ring) }

// String returns the channel's name.
func (c *cmChannel) String() string { return fmt.Sprintf("CM channel %d", c.number) }

// CreateID makes an identifier that reports to this channel, in port space TCP, UDP or IB.
//
// Implements: rdma_create_id.
func (c *cmChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	return c.CreateTypedID(ps, ps.QPType(), userData)
}

// CreateTypedID makes an identifier for queue pairs of a type.
//
// Implements: rdma_create_ep.
func (c *cmChannel) CreateTypedID(ps verbs.PortSpace, t verbs.QPType, userData uint64) (verbs.CMID, error) {
	const op = "rdma_create_id"
	if c.p.cm.ports[ps] == nil {
		return nil, notYet(op, c.String(), fmt.Sprintf("port space 0x%04x; there are TCP (0x%04x), UDP (0x%04x) and IB (0x%04x)",
			uint16(ps), uint16(verbs.PSTCP), uint16(verbs.PSUDP), uint16(verbs.PSIB)))
	}
	if t != ps.QPType() && (ps != verbs.PSIB || !isXRC(t)) {
		return nil, opError(op, c.String(), syscall.EINVAL, "%w: queue pairs of type %v in port space 0x%04x", verbs.ErrInvalid, t, uint16(ps))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, opError(op, c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	c.ids++
	id := c.p.newID(c, ps, t)
	id.userData.Store(userData)
	return id, nil
}

// push queues an event. It may be called during Progress.
func (c *cmChannel) push(e cmEvent) {
	c.mu.Lock()
	if len(c.queue) == cap(c.queue) && c.taken >= len(c.queue)/2 {
		c.keep(c.queue[:copy(c.queue, c.queue[c.taken:])])
	}
	c.queue = append(c.queue, e)
	c.mu.Unlock()
	c.notifier.Signal()
}

// keep replaces the queue with q, its remaining events moved to the front. The caller holds mu.
func (c *cmChannel) keep(q []cmEvent) {
	clear(c.queue[len(q):])
	if c.queue, c.taken = q, 0; len(q) == 0 && cap(q) > keptEvents {
		c.queue = nil
	}
}

// GetEvent takes the oldest event. It does not block, except that a CONNECT_REQUEST waits for a
// device that is being opened or closed. Any goroutine may call it. The event must be
// acknowledged.
//
// Implements: rdma_get_cm_event on a non-blocking descriptor.
func (c *cmChannel) GetEvent() (verbs.CMEvent, bool, error) {
	e, ok, err := c.take()
	if !ok {
		return verbs.CMEvent{}, false, err
	}
	if e.listen != nil {
		e.id.deliver(e.listen)
	}
	return e.ev, true, nil
}

func (c *cmChannel) take() (e cmEvent, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return e, false, opError("rdma_get_cm_event", c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	if c.taken < len(c.queue) {
		e, ok = c.queue[c.taken], true
		c.queue[c.taken] = cmEvent{}
		c.taken++
		// Counted under mu: Close and Migrate, which also hold mu, find the event either in the
		// queue or counted.
		e.id.unacked.Add(1)
		if e.listen != nil {
			e.listen.unacked.Add(1)
			c.ids++ // the new identifier belongs to the user from now on
		}
	}
	if c.taken == len(c.queue) {
		c.keep(c.queue[:0])
		c.notifier.Drain() // a later push signals after it
	}
	return e, ok, nil
}

// Ack acknowledges an event; call it once for each event. The event's private data must not be
// used afterwards.
//
// Implements: rdma_ack_cm_event.
func (c *cmChannel) Ack(ev verbs.CMEvent) {
	if id, ok := ev.ID.(*cmID); ok && id != nil {
		id.unacked.Add(-1)
	}
	if id, ok := ev.ListenID.(*cmID); ok && id != nil {
		id.unacked.Add(-1)
	}
}

// withdraw takes the events that mine selects out of the queue, and ends id's reporting to this
// channel. If id has unacknowledged events, it takes none and returns false.
func (c *cmChannel) withdraw(id *cmID, mine func(e *cmEvent) bool) (out []cmEvent, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id.unacked.Load() > 0 {
		return nil, false
	}
	rest := c.queue[:0]
	for i := c.taken; i < len(c.queue); i++ {
		if e := &c.queue[i]; mine(e) {
			out = append(out, *e)
		} else {
			rest = append(rest, *e)
		}
	}
	c.keep(rest)
	c.ids--
	if len(c.queue) == 0 && !c.closed {
		c.notifier.Drain()
	}
	return out, true
}

// Close destroys the channel and its descriptor. It returns [verbs.ErrBusy] while identifiers
// report here. It is idempotent.
//
// Implements: rdma_destroy_event_channel.
func (c *cmChannel) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if c.ids > 0 {
		return opError("rdma_destroy_event_channel", c.String(), syscall.EBUSY, "%w: %d identifiers report here", verbs.ErrBusy, c.ids)
	}
	c.closed = true
	c.p.cm.channels.Add(-1)
	liveObjects.Add(-1)
	return c.notifier.Close()
}
