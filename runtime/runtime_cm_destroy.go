package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// closeRetry is the time between two attempts to close an object that is busy. For example, a
// connection manager identifier is busy until all its events are acknowledged.
const closeRetry = time.Millisecond

// closeTries is how often the shard tries to close an identifier whose Close fails with an error
// other than ErrBusy. The shard does not give up earlier, because the queue pair of an open
// identifier may use the runtime's memory.
const closeTries = 100

// maxClosers is how many identifiers a shard (a reactor with its event channel) closes at the same
// time. There is a limit because each call that waits in the kernel occupies a thread.
const maxClosers = 8

// closingID is an identifier that is being closed. It is in shard.closing until the identifier is
// closed or given up. The holder of the turn (the goroutine that runs the reactor) owns the
// closingID.
//
//	closeID ──> tried ── closed, or no tries are left ──> done, for each caller of closeID
//	              ^ │ busy or failed: again after closeRetry
//	              └─┘
//
// Each try runs on a goroutine of its own, without the turn. (A try that held the turn would delay
// every connection of the reactor.) The kernel may take long to destroy a queue pair. Soft-RoCE,
// for example, waits up to 50 s until every packet of the queue pair has left the machine's network
// stack. A packet to a peer that does not answer ARP stays in the stack for three seconds
// (rxe_pool.c, __rxe_cleanup; rxe_net.c, rxe_skb_tx_dtor).
//
// Closing without the turn is safe because the reactor.Queue of the queue pair was sealed before:
// no pass touches the queue pair any more. Passes still poll the queue pair's completions. When the
// queue pair is destroyed, the holder releases the reactor.Queue.
type closingID struct {
	id    connID
	tries int           // tries left; a try that fails with ErrBusy does not count
	done  []func(error) // callbacks of all callers of closeID, in order
}

// The type closers has the identifiers that a shard is closing. The holder of the turn owns all its
// fields except quiet.
type closers struct {
	// The identifiers that are not closed yet. The identifiers of rejected requests are normally
	// closed in listen_reject.go, so a flood of such requests does not fill this map.
	closing map[connID]*closingID
	waiting []*closingID // identifiers whose next try waits, because maxClosers tries are running
	running int          // number of tries that run on goroutines
	ending  bool         // the shard is being closed, and further tries run with the turn held
	// The channel quiet wakes settleIDs. It gets a value when the map closing has become empty. It
	// also gets a value when the last goroutine that closes identifiers has ended.
	quiet chan struct{}
}

func newClosers() closers {
	return closers{closing: map[connID]*closingID{}, quiet: make(chan struct{}, 1)}
}

// closeID closes an identifier and then calls the callback done(err), unless done is nil. While
// events of the identifier are not acknowledged, Close fails, and closeID tries again. If an
// earlier call is closing the identifier already, closeID only adds the callback to the list. The
// reactor.Queue of the identifier's queue pair must have been sealed. The callback runs with the
// turn held, usually after closeID has returned. In a stepped runtime, or while the shard is being
// closed, the callback may run before closeID returns. Holder only.
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

// tryClose starts one try. If maxClosers tries are running, tryClose queues c instead. Holder only.
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

// triedOff handles the outcome of a try that ran on a goroutine, and starts the try that has waited
// longest. Holder only.
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

// notifyIfQuiet wakes settleIDs if no goroutine is closing identifiers. Holder only.
func (s *shard) notifyIfQuiet() {
	if s.running == 0 && !s.rejecting {
		s.wakeSettle()
	}
}

// wakeSettle makes settleIDs check its condition again, now or when it next waits.
func (s *shard) wakeSettle() {
	select {
	case s.quiet <- struct{}{}:
	default: // a value is already there
	}
}

// tried() handles the outcome of a try. If the identifier is closed or given up, tried() calls the
// callbacks. Otherwise it starts another try after closeRetry. Holder only.
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
