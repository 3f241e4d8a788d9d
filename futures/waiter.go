package futures

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Driver makes progress for a waiting goroutine, on that goroutine.
//
// Await and Group.Wait call Drive if they would have to wait. Drive may run its owner's work on the
// calling goroutine and may park it with w.Park. done is closed when the wait is to end; nil means
// never. It is the context's channel: a context's methods may be user code, which a driver must not
// run while others depend on it. Drive returns
//
//   - nil once w.Settled(), or once done is closed: the wait then returns the context's error;
//   - nil before that, to decline: the caller then parks until settled or done, and gets no offers;
//   - an error, which the wait returns. It does not consume the future; if the future settled
//     meanwhile the wait returns the result and drops the error.
//
// Futures must settle without being driven, too: a wait may be for futures of several drivers and
// drives only one, and there may be no wait at all. After Drive returned, the driver must not use w
// (a Ticket is exempt: it expires by itself).
type Driver interface {
	Drive(done <-chan struct{}, w *Waiter) error
}

// Signal says why Park returned.
type Signal uint8

// The reasons why Park returns.
const (
	SignalSettled   Signal = iota + 1 // the future or the group is settled
	SignalTurn                        // an Offer was accepted: use the turn or hand it on
	SignalCancelled                   // done was closed
)

// Waiter is the place where one goroutine waits: for a future (it is part of its cell) or a Group.
// Drivers get a pointer to it.
//
//	               Park                 settle: SignalSettled
//	RUNNING ------------------> PARKED ------------------------> SETTLED
//	   ^                         |  |                               ^
//	   |  ctx: SignalCancelled   |  |                               | settle, no signal:
//	   +-------------------------+  |                               | Settled sees it
//	   |  Offer: SignalTurn         |                               |
//	   +----------------------------+                               |
//	   +------------------------------------------------------------+
//
// PARKED is one flag of the word. Settle, Offer, Retract and the ended context compete to clear it
// with one CAS, which ends the park. The winner, if it is not the parked goroutine itself, sends
// exactly one signal, and the parked goroutine leaves only by its own CAS or with that signal.
// Hence
//
//   - an accepted Offer is always received: if Park returns anything but SignalTurn, there is no
//     accepted offer;
//   - a settle is never lost: after SignalTurn, Settled may already be true, and the turn must be
//     handed on all the same;
//   - the channel holds at most one signal and is empty at each Park, so no sender ever blocks.
type Waiter struct {
	// word is written by every party as drawn in cell.go; SETTLED publishes the result, PARKED the
	// wake channel.
	word atomic.Uint64
	// wake carries the one signal that ends a park. Made by the first Park, then kept for the
	// cell's life.
	wake chan Signal
	// announced belongs to the waiting goroutine: it set PARKED and has not seen the end of that
	// park yet.
	announced bool
}

// A load is no step of the model: a CAS then compares its value, and fails and loads again if the
// word has changed, or it was the first access. Where a load alone decides (Settled), it is a step.
func (w *Waiter) load() uint64 { return model.Loaded(w.word.Load()) }

func (w *Waiter) cas(old, new uint64) bool {
	model.Step()
	return model.Swapped(w.word.CompareAndSwap(old, new))
}

// Settled reports whether the wait is over: the future, or every future of the Group, is settled.
// It is one atomic load and never blocks. Only the goroutine inside Drive calls it.
func (w *Waiter) Settled() bool {
	model.Yield("settled")
	return w.load()&bitSettled != 0
}

// Announce makes offers possible before Park blocks, so that a driver can look once more before it
// parks: a turn released after Announce is offered to this waiter, and the look finds a turn
// released before. Announce returns false, and announces nothing, if the wait is settled. After
// true, Park or Retract must follow before Drive returns. Only the goroutine inside Drive may call
// it. It never blocks.
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

// Retract takes Announce back. It returns false if a signal is on its way already; then Park, which
// returns the signal, must be called. Only the goroutine inside Drive may call it. It never blocks.
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

// Park blocks the calling goroutine until the wait is settled, an Offer is accepted or done is
// closed, and returns which. If several happen at once it reports any one of them, except that an
// accepted offer is always reported. Only the goroutine inside Drive may call it, as often as it
// likes. It allocates nothing after a cell's first park.
func (w *Waiter) Park(done <-chan struct{}) Signal {
	if !w.Announce() {
		return SignalSettled
	}
	sig, ok := model.Receive(w.wake, done)
	if !ok {
		if w.Retract() {
			return SignalCancelled
		}
		sig, _ = model.Receive(w.wake, nil) // too late: the signal is on its way
	}
	w.announced = false
	return sig
}

// Offer hands the turn to this waiter. It returns true if the offer is accepted: the waiter's Park
// returns SignalTurn, even if it is settled or its context ends meanwhile. It returns false if the
// waiter is not parked in Drive (any more); offer the turn to another. It never blocks and may be
// called from any goroutine while the waiter's Drive has not returned; a driver that cannot be sure
// of that offers through a Ticket.
func (w *Waiter) Offer() bool { return w.offer(0, 0) }

// Ticket returns a reference to this wait that a driver may keep after Drive returned. Only the
// goroutine inside Drive may call it.
func (w *Waiter) Ticket() Ticket { return Ticket{w, generationOf(w.load())} }

// Ticket is a reference to one wait and expires with it: once the waiter belongs to another
// operation, an offer through an old ticket is refused. The zero Ticket refuses every offer. It
// keeps the waiter's memory alive.
type Ticket struct {
	w   *Waiter
	gen uint64
}

// Offer is Waiter.Offer, and returns false once the ticket's wait is over. It never blocks; any
// goroutine may call it at any time.
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

// signal ends a park whose PARKED flag the caller has cleared. The parked goroutine stays until it
// has received the signal, so the cell is still the same.
func (w *Waiter) signal(s Signal) {
	model.Yield("signal")
	w.wake <- s
}

// wait lets d drive, or parks, until settled or done (nil), or until the driver ends it with an
// error. The caller has set AWAITED and DRIVEN.
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
