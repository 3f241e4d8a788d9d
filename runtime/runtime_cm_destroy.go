package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// closeRetry is how long to wait for the acknowledgement of an event that
// another goroutine has.
const closeRetry = time.Millisecond

// closeTries is how often an identifier is closed that the device does not let
// go, with closeRetry between. Its queue pair may have our memory until then.
const closeTries = 100

// closersMost is how many identifiers of a shard are closed at once: each that waits in
// the kernel has a thread.
const closersMost = 8

// closingID is an identifier on its way out. It is in shard.closing until it is
// closed or given up. The holder's.
//
//	closeID ──> tried ── closed, or tries are used up ──> done, each of those who asked
//	              ^ │ busy, refused: after closeRetry
//	              └─┘
//
// It is tried off the turn, on a goroutine of its own. The kernel may take its time to
// destroy a queue pair: Soft-RoCE's waits, for up to 50 s, until every packet of it has
// left the machine's network stack, and for a peer that does not answer to ARP that is
// three seconds (rxe_pool.c, __rxe_cleanup; rxe_net.c, rxe_skb_tx_dtor). Every connection
// of the reactor would wait with it. That breaks no rule: the queue is sealed, so that
// no turn touches the queue pair any more, and it is released, on the turn, when the
// queue pair is gone. What completes meanwhile is taken as ever.
type closingID struct {
	id    connID
	tries int           // left; waiting for acknowledgements uses none up
	done  []func(error) // everybody who asked, in order
}

// closers are the tries of a shard. The holder's, but for quiet.
type closers struct {
	// closing are the identifiers that the device did not let go yet: of connections and
	// listeners, which are bounded. What peers ask for in vain is dismissed (listen_reject.go).
	closing map[connID]*closingID
	waiting []*closingID // for one of closersMost
	under   int          // tries under way
	ending  bool         // the shard is being closed: what comes now is tried on the turn
	// quiet has a value after the last try or batch of dismissals under way has ended, and
	// after the last identifier was closed or given up; settleIDs takes it.
	quiet chan struct{}
}

func newClosers() closers {
	return closers{closing: map[connID]*closingID{}, quiet: make(chan struct{}, 1)}
}

// closeID closes an identifier, now or as soon as its events are
// acknowledged, and then calls done (may be nil). Of one that is being closed
// already (a device that goes meets an end under way), it waits for that. The queue of
// its queue pair must have been sealed. done is called holding the turn, often before
// closeID returns if the runtime is stepped, else later. Holder only.
func (s *shard) closeID(id connID, done func(error)) {
	delete(s.targets, id)
	c := s.closing[id]
	if c == nil {
		c = &closingID{id: id, tries: closeTries}
		s.closing[id] = c
		defer s.tryClose(c)
	}
	if done != nil {
		c.done = append(c.done, done)
	}
}

// tryClose tries once, soon.
func (s *shard) tryClose(c *closingID) {
	switch {
	case s.closing[c.id] != c: // the shard's end was faster
	case s.rt.cfg.stepped || s.ending:
		s.tried(c, c.id.Close())
	case s.under == closersMost:
		s.waiting = append(s.waiting, c)
	default:
		s.under++
		go func() {
			err := c.id.Close()
			s.r.Defer(func() { s.triedOff(c, err) })
		}()
	}
}

// triedOff takes the outcome of a try off the turn, and has the next one begin.
func (s *shard) triedOff(c *closingID, err error) {
	s.under--
	if len(s.waiting) > 0 {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.tryClose(next)
	}
	s.tried(c, err)
	s.tellQuiet()
}

// tellQuiet has settleIDs look again when nothing is closed off the turn any more.
func (s *shard) tellQuiet() {
	if s.under == 0 && !s.rejecting {
		s.rouse()
	}
}

// rouse has settleIDs look again.
func (s *shard) rouse() {
	select {
	case s.quiet <- struct{}{}:
	default: // it has one
	}
}

// tried takes the outcome of a try.
func (s *shard) tried(c *closingID, err error) {
	switch busy := errors.Is(err, verbs.ErrBusy); {
	case err == nil || errors.Is(err, verbs.ErrDeviceRemoved):
	case busy || c.tries > 1:
		if !busy {
			c.tries--
		}
		s.r.After(closeRetry, func() { s.tryClose(c) })
		return
	}
	delete(s.closing, c.id)
	for _, done := range c.done {
		done(err)
	}
	if len(s.closing) == 0 {
		s.rouse()
	}
}
