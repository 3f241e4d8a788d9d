package runtime

import (
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// closeRetry is the time between two attempts to close an object that is busy. For example, a
// connection manager identifier is busy until all its events are acknowledged.
const closeRetry = time.Millisecond

// closeTries is how many times a shard tries to close an identifier whose Close fails with an error
// other than ErrBusy. The number is large, because the queue pair of an identifier that stays open
// may still use the runtime's memory.
const closeTries = 100

// maxClosers is how many identifiers a shard (a reactor with its event channel) closes at the same
// time. The number is limited because each call of Close that waits in the kernel occupies a thread.
const maxClosers = 8

// closingID is an identifier that is being closed. It is in shard.closing until the identifier is
// closed, or until no tries are left. The holder of the turn (the goroutine that runs the reactor)
// owns the closingID.
//
//	closeID ──> a try ── closed, or no tries are left ──> done, for each caller of closeID
//	              ^ │ busy or failed: again after closeRetry
//	              └─┘
//
// A try is one call of the identifier's Close, which also destroys the queue pair. The kernel may take
// long for that. Soft-RoCE, for example, waits up to 50 s until every packet of the queue pair has
// left the machine's network stack. A packet to a peer that does not answer ARP stays in the stack
// for three seconds (rxe_pool.c, __rxe_cleanup; rxe_net.c, rxe_skb_tx_dtor). So each try runs on a
// goroutine of its own, without the turn: with the turn held, it would delay every connection of the
// reactor.
//
// A try without the turn is safe because the reactor.Queue of the queue pair was sealed before: no
// pass touches the queue pair any more. Passes still poll the completions of the queue pair. When
// the queue pair is destroyed, the holder releases the reactor.Queue.
type closingID struct {
	id    connID
	tries int           // number of tries that are left; a try that fails with ErrBusy does not count
	done  []func(error) // the callbacks that were given to closeID, in the order of the calls
}

// closers has the identifiers that a shard is closing. The holder of the turn owns all fields except
// quiet.
type closers struct {
	// The identifiers that are not closed yet. The identifiers of rejected requests are normally
	// closed in listen_reject.go, so a flood of such requests does not fill this map.
	closing map[connID]*closingID
	waiting []*closingID // identifiers whose next try waits, because maxClosers tries are running
	running int          // number of tries that run on goroutines of their own
	ending  bool         // the shard is being closed; from now on tries run with the turn held
	// quiet wakes settleIDs. It gets a value when the last identifier has been removed from
	// closers.closing, and when the last goroutine that closes identifiers has ended.
	quiet chan struct{}
}

func newClosers() closers {
	return closers{closing: map[connID]*closingID{}, quiet: make(chan struct{}, 1)}
}

// closeID closes an identifier. When the identifier is closed, or when no tries are left, the result
// of the last try is passed to the callback done, unless done is nil. If an earlier call of closeID is closing the
// identifier, closeID only adds done to the callbacks of that call. If the identifier has a queue pair,
// the reactor.Queue of the queue pair must have been sealed.
//
// The callback done runs with the turn held, usually after closeID has returned. In a stepped
// runtime, or while the shard is being closed, done may run before closeID returns. Holder only.
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

// tryClose starts one try. If maxClosers tries are running, it appends c to closers.waiting
// instead. Holder only.
func (s *shard) tryClose(c *closingID) {
	switch {
	case s.closing[c.id] != c: // an earlier try has closed the identifier
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

// triedOff handles the outcome of a try that ran on a goroutine of its own. It also starts the try
// that has waited longest. Holder only.
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

// wakeSettle wakes settleIDs, so that settleIDs checks its condition again. If settleIDs does not wait
// now, its next wait ends at once.
func (s *shard) wakeSettle() {
	select {
	case s.quiet <- struct{}{}:
	default: // quiet has a value already
	}
}

// shard.tried handles the outcome of a try. If the identifier is closed, or if no tries are left,
// it calls the callbacks. Otherwise it starts another try after closeRetry. Holder only.
func (s *shard) tried(c *closingID, err error) {
	switch busy := errors.Is(err, verbs.ErrBusy); {
	case err == nil || errors.Is(err, verbs.ErrDeviceRemoved): // closed
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
