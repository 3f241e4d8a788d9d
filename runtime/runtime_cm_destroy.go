package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// closeRetry is the time between attempts to close an object that is busy,
// for example because another goroutine has not acknowledged an event yet.
const closeRetry = time.Millisecond

// closeTries is the number of tries, closeRetry apart, to close an identifier that the device
// refuses to close. Until it is closed, its queue pair may use the runtime's memory.
const closeTries = 100

// maxClosers is how many identifiers of a shard are closed
// concurrently. A call that waits in the kernel occupies a thread.
const maxClosers = 8

// closingID is an identifier that is being closed. It is in
// shard.closing until it is closed or given up. Owned by the holder.
//
//	closeID ──> tried ── closed, or tries are used up ──> done, for each caller of closeID
//	              ^ │ busy, refused: after closeRetry
//	              └─┘
//
// Each try runs off the turn, on a goroutine of its own, because the kernel may take long
// to destroy a queue pair, and on the turn every connection of the reactor would wait.
// Soft-RoCE waits up to 50 s until every packet of the queue pair has left the machine's
// network stack, which takes three seconds for a peer that does not answer ARP (rxe_pool.c,
// __rxe_cleanup; rxe_net.c, rxe_skb_tx_dtor). Off the turn is safe: the reactor.Queue is
// sealed, so no pass touches the queue pair any more, and is released on the turn, when
// the queue pair is gone. Meanwhile its completions are polled as usual.
type closingID struct {
	id    connID
	tries int           // tries left; a try that fails with ErrBusy does not count
	done  []func(error) // callbacks of all callers, in order
}

// closers holds the tries of a shard. Owned by the holder, except for quiet.
type closers struct {
	// closing holds the identifiers not yet closed, of connections and listeners, whose number
	// is bounded. Identifiers of rejected requests are closed elsewhere (listen_reject.go).
	closing map[connID]*closingID
	waiting []*closingID // waiting until fewer than maxClosers are tried
	running int          // tries that run on goroutines
	ending  bool         // the shard is being closed: further tries run on the turn
	// quiet gets a value when the last running try or rejection batch has ended,
	// and when the last identifier was closed or given up; settleIDs receives it.
	quiet chan struct{}
}

func newClosers() closers {
	return closers{closing: map[connID]*closingID{}, quiet: make(chan struct{}, 1)}
}

// closeID closes an identifier, now or as soon as its events are acknowledged, and
// then calls done (may be nil). If the identifier is already being closed (the
// device may be removed meanwhile), done is added to the callbacks. The queue of
// its queue pair must have been sealed. done is called holding the turn: later, or, if
// the runtime is stepped or the shard is being closed, perhaps before closeID returns.
// Holder only.
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

// tryClose starts one try, or queues it.
func (s *shard) tryClose(c *closingID) {
	switch {
	case s.closing[c.id] != c: // closed by an earlier try
	case s.rt.cfg.stepped || s.ending:
		s.tried(c, c.id.Close())
	case s.running == maxClosers:
		s.waiting = append(s.waiting, c)
	default:
		s.running++
		go func() {
			err := c.id.Close()
			s.r.Defer(func() { s.triedOff(c, err) })
		}()
	}
}

// triedOff handles the outcome of a try off the turn, and starts the next one.
func (s *shard) triedOff(c *closingID, err error) {
	s.running--
	if len(s.waiting) > 0 {
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.tryClose(next)
	}
	s.tried(c, err)
	s.notifyIfQuiet()
}

// notifyIfQuiet wakes settleIDs when nothing is being closed off the turn.
func (s *shard) notifyIfQuiet() {
	if s.running == 0 && !s.rejecting {
		s.wakeSettle()
	}
}

// wakeSettle wakes settleIDs.
func (s *shard) wakeSettle() {
	select {
	case s.quiet <- struct{}{}:
	default: // a value is already there
	}
}

// tried handles the outcome of a try.
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
		s.wakeSettle()
	}
}
