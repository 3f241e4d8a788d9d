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

// closingID is an identifier on its way out. It is in shard.closing until it is
// closed or given up. The holder's.
//
//	closeID ──> tried ── closed, or tries are used up ──> done, each of those who asked
//	              ^ │ busy, refused: after closeRetry
//	              └─┘
type closingID struct {
	id    connID
	tries int           // left; waiting for acknowledgements uses none up
	done  []func(error) // everybody who asked, in order
}

// closeID closes an identifier, now or as soon as its events are
// acknowledged, and then calls done (may be nil). Of one that is being closed
// already (a device that goes meets an end under way), it waits for that. Holder only.
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

// tryClose tries once.
func (s *shard) tryClose(c *closingID) {
	if s.closing[c.id] != c { // the shard's end was faster
		return
	}
	err := c.id.Close()
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
}
