package turn

import "github.com/verbena-rdma/verbena/futures"

// Waiter makes a [Parker] of what futures give to their driver. It allocates
// nothing. A driver is then one line:
//
//	func (r *Reactor) Drive(done <-chan struct{}, w *futures.Waiter) error {
//		r.token.Drive(done, turn.Waiter(w))
//		return nil
//	}
func Waiter(w *futures.Waiter) Parker { return (*waiter)(w) }

type waiter futures.Waiter

func (w *waiter) future() *futures.Waiter { return (*futures.Waiter)(w) }

func (w *waiter) Settled() bool { return w.future().Settled() }

func (w *waiter) Park(done <-chan struct{}) Signal {
	switch w.future().Park(done) {
	case futures.SignalTurn:
		return SignalTurn
	case futures.SignalCancelled:
		return SignalCancelled
	}
	return SignalSettled
}

func (w *waiter) Offer() bool { return w.future().Offer() }
