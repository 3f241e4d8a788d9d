package turn

import (
	"context"

	"github.com/verbena-rdma/verbena/futures"
)

// Waiter makes a [Parker] of what futures give to their driver. It allocates
// nothing. A driver is then one line:
//
//	func (r *Reactor) Drive(ctx context.Context, w *futures.Waiter) error {
//		return r.token.Drive(ctx, turn.Waiter(w))
//	}
func Waiter(w *futures.Waiter) Parker { return (*waiter)(w) }

type waiter futures.Waiter

func (w *waiter) future() *futures.Waiter { return (*futures.Waiter)(w) }

func (w *waiter) Settled() bool { return w.future().Settled() }

func (w *waiter) Park(ctx context.Context) Signal {
	switch w.future().Park(ctx) {
	case futures.SignalTurn:
		return SignalTurn
	case futures.SignalCancelled:
		return SignalCancelled
	}
	return SignalSettled
}

func (w *waiter) Offer() bool { return w.future().Offer() }

// TakeOffer: a future's Park reports every offer that was accepted.
func (w *waiter) TakeOffer() bool { return false }
