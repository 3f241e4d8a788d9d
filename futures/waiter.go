package futures

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Driver makes progress for a waiting goroutine, on that goroutine.
//
// Drive is called by Await or Group.Wait when what they wait for is not settled yet. It may run its owner's work on the
// calling goroutine and may park it with w.Park. done is closed when the wait is to end; nil: never. It is the context's
// channel: a context's methods may be user code, which a driver must not run while others depend on it. Drive returns
//
//   - nil once w.Settled(), or once done is closed: the wait then returns the context's error;
//   - nil before that, to decline: the caller then simply parks until settled or done, and gets no offers;
//   - an error, which the wait returns. The future is not consumed by it; if it settled meanwhile the result is returned
//     and the error dropped.
//
// Futures must settle without being driven, too: a wait may be for futures of several drivers and drives only one, and
// nobody need wait at all. After Drive returned, the driver uses w no more (a Ticket is exempt: it expires by itself).
type Driver interface {
	Drive(done <-chan struct{}, w *Waiter) error
}

// Signal says why Park returned.
type Signal uint8

// Why Park returns.
const (
	SignalSettled   Signal = iota + 1 // what was waited for is settled
	SignalTurn                        // an Offer was accepted: the turn is this goroutine's, it must use it or hand it on
	SignalCancelled                   // done was closed
)

// Waiter is the place where one goroutine waits: for a future (it is part of its cell) or a Group. Drivers are given a
// pointer to it.
//
//	               Park                 settle: SignalSettled
//	RUNNING ------------------> PARKED ------------------------> SETTLED
//	   ^                         |  |                               ^
//	   |  ctx: SignalCancelled   |  |                               | settle, no signal:
//	   +-------------------------+  |                               | it is seen by Settled
//	   |  Offer: SignalTurn         |                               |
//	   +----------------------------+                               |
//	   +------------------------------------------------------------+
//
// PARKED is one flag of the word, and whoever clears it ends the park: settle, Offer, Retract and the ended context compete
// for that one CAS. The winner, if it is not the parked goroutine itself, sends exactly one signal, and the parked goroutine
// leaves only by its own CAS or with that signal. Hence
//
//   - an accepted Offer is received, always: when Park returns anything but SignalTurn, no accepted offer is under way;
//   - a settle is never lost: after SignalTurn, Settled may already be true, and the turn is to be handed on all the same;
//   - the channel holds at most one signal and is empty at each Park, so no sender ever blocks.
type Waiter struct {
	// word is written by every party as drawn in cell.go; SETTLED publishes the result, PARKED the wake channel.
	word atomic.Uint64
	// wake carries the one signal that ends a park. Made by the first Park, then kept for the cell's life.
	wake chan Signal
	// announced is the waiting goroutine's own: PARKED was set by it and the end of that park not seen yet.
	announced bool
}

// A load is no step of the model: its value is then compared by a CAS, which fails and loads again if somebody was
// faster, or it was the first access. Where a load alone decides (Settled), the step is taken there.
func (w *Waiter) load() uint64 { return model.Loaded(w.word.Load()) }

func (w *Waiter) cas(old, new uint64) bool {
	model.Step()
	return model.Swapped(w.word.CompareAndSwap(old, new))
}

// Settled reports whether the wait is over: the future, or every future of the Group, is settled.
// One atomic load; it never blocks. For the goroutine inside Drive.
func (w *Waiter) Settled() bool {
	model.Yield("settled")
	return w.load()&bitSettled != 0
}

// Announce makes offers possible before Park blocks, so that a driver can look once more at what it would park for: what
// is released after Announce is offered to this waiter, what was released before is seen by the look. False: it is
// settled, and nothing was announced. After true, Park or Retract must follow before Drive returns.
// Only the goroutine inside Drive may call it. It never blocks.
func (w *Waiter) Announce() bool {
	if w.announced {
		return true
	}
	if w.wake == nil {
		w.wake = make(chan Signal, 1)
	}
	for {
		s := w.load()
		if s&bitSettled != 0 {
			return false
		}
		if w.cas(s, s|bitParked) {
			w.announced = true
			return true
		}
	}
}

// Retract takes Announce back. False: too late, a signal is under way, and Park, which returns it, must be called.
// Only the goroutine inside Drive may call it. It never blocks.
func (w *Waiter) Retract() bool {
	if !w.announced {
		return true
	}
	for {
		s := w.load()
		if s&bitParked == 0 {
			return false
		}
		if w.cas(s, s&^bitParked) {
			w.announced = false
			return true
		}
	}
}

// Park blocks the calling goroutine until the wait is settled, an Offer is accepted or done is closed, and says which. When
// several happen at once any one of them is reported, except that an accepted offer is always reported.
// Only the goroutine inside Drive may call it, as often as it likes. It allocates nothing after a cell's first park.
func (w *Waiter) Park(done <-chan struct{}) Signal {
	if !w.Announce() {
		return SignalSettled
	}
	sig, ok := model.Receive(w.wake, done)
	if !ok {
		if w.Retract() {
			return SignalCancelled
		}
		sig, _ = model.Receive(w.wake, nil) // somebody ended the park before us: his signal is there or about to be
	}
	w.announced = false
	return sig
}

// Offer hands the turn to this waiter. True: it is accepted, and the waiter's Park returns SignalTurn, even if it is
// settled or its context ends meanwhile. False: it is not parked in Drive (any more); offer the turn to another.
// It never blocks and may be called from any goroutine while the waiter's Drive has not returned; a driver that cannot
// be sure of that offers through a Ticket.
func (w *Waiter) Offer() bool { return w.offer(0, 0) }

// Ticket returns a reference to this wait that a driver may keep after Drive returned. For the goroutine inside Drive.
func (w *Waiter) Ticket() Ticket { return Ticket{w, generationOf(w.load())} }

// Ticket is a reference to one wait which expires with it: when the waiter has become another operation's, an offer
// through an old ticket is refused. The zero Ticket refuses every offer. It keeps the waiter's memory alive.
type Ticket struct {
	w   *Waiter
	gen uint64
}

// Offer is Waiter.Offer, and false once the ticket's wait is over. It never blocks; from any goroutine, at any time.
func (t Ticket) Offer() bool { return t.w != nil && t.w.offer(^uint64(flagMask), t.gen) }

func (w *Waiter) offer(mask, gen uint64) bool {
	for {
		s := w.load()
		if s&mask != gen || s&(bitParked|bitDriven) != bitParked|bitDriven {
			return false
		}
		if w.cas(s, s&^bitParked) {
			w.signal(SignalTurn)
			return true
		}
	}
}

// signal ends a park whose PARKED flag the caller has cleared. The parked goroutine stays until it has received it, so
// the cell is still the same.
func (w *Waiter) signal(s Signal) {
	model.Yield("signal")
	w.wake <- s
}

// wait lets d drive, or parks, until settled or done (nil), or until the driver ends it with an error. The caller has set
// AWAITED and DRIVEN.
func (w *Waiter) wait(done <-chan struct{}, d Driver) error {
	if d != nil {
		err := d.Drive(done, w)
		if w.announced {
			panic("futures: Drive returned between Announce and Park")
		}
		if err != nil || w.Settled() {
			return err
		}
	}
	for { // no driver, or it declined: no offers from here on
		s := w.load()
		if w.cas(s, s&^bitDriven) {
			break
		}
	}
	w.Park(done)
	return nil
}
