package soft

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

// keptEvents is how many events an empty queue keeps room for.
const keptEvents = 256

// cmEvent is a queued event. Its channel is that of listen if it is set,
// otherwise that of id.
type cmEvent struct {
	ev     verbs.CMEvent
	id     *cmID
	listen *cmID
}

// cmChannel delivers connection events.
//
// Locks, in the order in which they are taken; whoever holds one may take those
// behind it, and nobody waits for a turn of an engine holding the last two:
//
//	cmID.api          one call of an identifier at a time; never taken in a turn
//	Provider.opening  devices join and leave the fabric; never taken in a turn
//	the port's token  a turn, or device.exclusive: the machine and the queue pair
//	cmID.mu           a listener's before its children's
//	cmChannel.mu
type cmChannel struct {
	p        *Provider
	number   uint64
	notifier *sys.Event

	mu     sync.Mutex
	queue  []cmEvent // the first taken places are empty
	taken  int
	ids    int // identifiers that report here and are known to the consumer
	closed bool
}

var _ verbs.CMChannel = (*cmChannel)(nil)

// CreateCMChannel makes a channel for connection events. It does not block.
// The channel may be used from any goroutine.
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

// cmShared is the connection management of a provider, apart from the machines
// of its devices.
type cmShared struct {
	ports    cmPorts // port space TCP
	udpPorts cmPorts
	wild     idSet // listeners on all devices
	numbers  atomic.Uint64
	channels atomic.Int64 // alive
	ids      atomic.Int64 // alive, those included that the consumer has not been told of
}

// CMObjects counts the channels and identifiers that are alive, for leak
// checks. They belong to the provider: an identifier exists before it has a
// device, and a channel has none.
func (p *Provider) CMObjects() verbs.ObjectCount {
	return verbs.ObjectCount{CMChannel: int(p.cm.channels.Load()), CMID: int(p.cm.ids.Load())}
}

// FD is readable while an event is queued; see [verbs.Source].
func (c *cmChannel) FD() int { return c.notifier.FD() }

// Notify sets what is called when an event is queued and there is no
// descriptor; see [verbs.Source].
func (c *cmChannel) Notify(ring func()) { c.notifier.Notify(ring) }

// String names the channel.
func (c *cmChannel) String() string { return fmt.Sprintf("CM channel %d", c.number) }

// CreateID makes an identifier that reports here, in port space TCP or UDP.
//
// Implements: rdma_create_id.
func (c *cmChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	const op = "rdma_create_id"
	if ps != verbs.PSTCP && ps != verbs.PSUDP {
		return nil, notYet(op, c.String(), fmt.Sprintf("port space 0x%04x; there are TCP (0x%04x) and UDP (0x%04x)", uint16(ps), uint16(verbs.PSTCP), uint16(verbs.PSUDP)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, opError(op, c.String(), syscall.EBADF, "%w", verbs.ErrClosed)
	}
	c.ids++
	id := c.p.newID(c, ps)
	id.userData.Store(userData)
	return id, nil
}

// push queues an event. In a turn or outside.
func (c *cmChannel) push(e cmEvent) {
	c.mu.Lock()
	if len(c.queue) == cap(c.queue) && c.taken >= len(c.queue)/2 {
		c.keep(c.queue[:copy(c.queue, c.queue[c.taken:])])
	}
	c.queue = append(c.queue, e)
	c.mu.Unlock()
	c.notifier.Signal()
}

// keep makes q, which begins where the queue does and holds what waits, the queue. Under mu.
func (c *cmChannel) keep(q []cmEvent) {
	clear(c.queue[len(q):])
	if c.queue, c.taken = q, 0; len(q) == 0 && cap(q) > keptEvents {
		c.queue = nil
	}
}

// GetEvent takes one event, in the order in which they happened. It does not
// block, except that a CONNECT_REQUEST waits for a device that is just being
// opened or closed; any goroutine may call it. The event must be acknowledged.
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
		// Counted under mu, so that Close and Migrate, which look under mu
		// too, either find the event in the queue or find it counted.
		e.id.unacked.Add(1)
		if e.listen != nil {
			e.listen.unacked.Add(1)
			c.ids++ // the new identifier is the consumer's from now on
		}
	}
	if c.taken == len(c.queue) {
		c.keep(c.queue[:0])
		c.notifier.Drain() // whoever queues one now signals after it
	}
	return e, ok, nil
}

// Ack acknowledges an event, once. Its private data is not the consumer's any
// more.
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

// withdraw takes the events out of the queue that mine picks, unless id has
// unacknowledged ones: then it takes none and returns false. Otherwise id does
// not report here any more.
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

// Close destroys the channel and its descriptor. It answers [verbs.ErrBusy]
// while identifiers report here. Idempotent.
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
