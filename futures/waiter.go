package futures

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Driver makes progress for a waiting goroutine, on that goroutine.
//
// Await and Group.Wait call Drive if they would have to wait. Drive may run its owner's work on the
// calling goroutine and may park that goroutine with w.Park. done is the channel of the wait's
// context: it is closed when the wait is to end, and nil if it never ends by its context. Drive
// gets the channel and not the context, because a context's methods may be user code, which must
// not run while the driver holds the turn. Drive returns
//
//   - nil when w.Settled() is true, or when done is closed: the wait then returns the context's
//     error;
//   - nil earlier, to decline: the caller then parks until settled or done, and gets no offers;
//   - an error, which the wait returns without consuming the future. If the future settled
//     meanwhile, the wait returns the result instead.
//
// Futures must settle without being driven, too: there may be no wait, and a wait for futures of
// several drivers calls only one of them. After Drive returned, the driver must not use w. It may
// use a Ticket, which expires with the wait.
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

// Waiter is the place where one goroutine waits for a future or a Group. It is part of the future's
// cell or of the Group; drivers get a pointer to it.
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
// PARKED is one flag of the word. The park ends with the one CAS that clears PARKED. Settle, Offer,
// Retract and the parked goroutine, when its context has ended, compete for this CAS. If another
// goroutine wins, it sends exactly one signal, and the parked goroutine leaves with that signal.
// Hence
//
//   - an accepted Offer is always received: if Park returns another signal than SignalTurn, no offer
//     was accepted;
//   - a settle is never lost: after SignalTurn, Settled may already be true, and the turn must still
//     be handed on;
//   - the channel holds at most one signal and is empty at the beginning of each Park, so no sender
//     ever blocks.
type Waiter struct {
	// word is described in cell.go. SETTLED publishes the result, PARKED the channel wake.
	word atomic.Uint64
	// wake carries the one signal that ends a park. Made by the first Park, then kept for the
	// cell's life.
	wake chan Signal
	// announced belongs to the waiting goroutine. It is true from the setting of PARKED until that
	// goroutine has seen the end of the park.
	announced bool
}

// load reads the word. It is not a step of the model, because a CAS follows that fails if the word
// has changed since. Where the load alone decides (Settled), the caller adds the step.
func (w *Waiter) load() uint64 { return model.Loaded(w.word.Load()) }

func (w *Waiter) cas(old, new uint64) bool {
	model.Step()
	return model.Swapped(w.word.CompareAndSwap(old, new))
}

// Settled reports whether the wait is over: the future, or every future of the Group, is settled.
// It is one atomic load and never blocks. Only the goroutine inside Drive may call it.
func (w *Waiter) Settled() bool {
	model.Yield("settled")
	return w.load()&bitSettled != 0
}

// Announce makes offers possible before Park blocks. A driver calls it, looks whether the turn is
// free, and only then parks: the look finds a turn that was released before Announce, and a turn
// released later is offered to this waiter. If the wait is settled, Announce returns false and
// announces nothing. After it returned true, Park or Retract must follow before Drive returns. Only
// the goroutine inside Drive may call it. It never blocks.
func (w *Waiter) Announce() bool { return w.announce(0) }

// announce is Announce; it also clears the flags in clear, unless the wait is settled.
func (w *Waiter) announce(clear uint64) bool {
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
		if w.cas(s, s&^clear|bitParked) {
			w.announced = true
			return true
		}
	}
}

// Retract takes Announce back. It returns false if a signal is on its way already; the caller must
// then call Park, which returns the signal. Only the goroutine inside Drive may call it. It never
// blocks.
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
// closed, and returns which of these happened. An accepted offer is always reported; of the other
// two, if both happened, either one. Only the goroutine inside Drive may call it, any number of
// times. It allocates nothing after a cell's first park.
func (w *Waiter) Park(done <-chan struct{}) Signal { return w.park(done, 0) }

// park is Park after announce(clear).
func (w *Waiter) park(done <-chan struct{}, clear uint64) Signal {
	if !w.announce(clear) {
		return SignalSettled
	}
	sig, ok := model.Receive(w.wake, done)
	if !ok {
		if w.Retract() {
			return SignalCancelled
		}
		sig, _ = model.Receive(w.wake, nil) // PARKED was cleared: the signal is on its way
	}
	w.announced = false
	return sig
}

// Offer hands the turn to this waiter. It returns true if the offer is accepted: the waiter's Park
// then returns SignalTurn, even if the wait is settled or its context ends meanwhile. It returns
// false if the waiter is not parked in Drive; offer the turn to another waiter. Offer never blocks
// and may be called from any goroutine until the waiter's Drive has returned. A driver that cannot
// ensure that uses a Ticket.
func (w *Waiter) Offer() bool { return w.offer(0, 0) }

// Ticket returns a reference to this wait that a driver may keep after Drive returned. Only the
// goroutine inside Drive may call it.
func (w *Waiter) Ticket() Ticket { return Ticket{w, generationOf(w.load())} }

// Ticket is a reference to one wait. It expires with the wait: later it refuses every offer, even
// if the waiter belongs to another operation by then. The zero Ticket refuses every offer. A Ticket
// keeps the waiter's memory alive.
type Ticket struct {
	w   *Waiter
	gen uint64
}

// Offer hands the turn to the waiter as Waiter.Offer does. It returns false if the ticket's wait is
// over. It never blocks; any goroutine may call it at any time.
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

// signal ends a park whose PARKED flag the caller has cleared. The parked goroutine waits for the
// signal, so the cell cannot belong to another operation yet.
func (w *Waiter) signal(s Signal) {
	model.Yield("signal")
	w.wake <- s
}

// wait calls d.Drive, and parks if d is nil or declines. It returns nil when the wait is settled or
// done is closed, or else the driver's error. The caller has set AWAITED and DRIVEN.
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
	w.park(done, bitDriven) // no driver, or it declined: no offers from here on
	return nil
}
