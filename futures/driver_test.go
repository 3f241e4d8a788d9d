package futures

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// turn is a whole Driver, as small as one can be: whoever holds it settles the jobs of everybody. The model test and the
// stress test run it.
type turn struct {
	held atomic.Bool // true: somebody holds the turn, or an accepted offer of it is under way

	mu       sync.Mutex // guards what follows
	enlisted []Ticket
	jobs     []func()
	offers   int // accepted
}

func (d *turn) take() bool { step(); return seenBool(d.held.CompareAndSwap(false, true)) }

func (d *turn) post(job func()) {
	step()
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
}

func (d *turn) enlist(t Ticket) {
	step()
	d.mu.Lock()
	d.enlisted = append(d.enlisted, t)
	seen(uint64(len(d.enlisted)))
	d.mu.Unlock()
}

func (d *turn) next() (t Ticket, ok bool) {
	step()
	d.mu.Lock()
	defer d.mu.Unlock()
	seen(uint64(len(d.enlisted)))
	if len(d.enlisted) == 0 {
		return t, false
	}
	t, d.enlisted = d.enlisted[0], d.enlisted[1:]
	return t, true
}

// work does one job; false: there is none.
func (d *turn) work() bool {
	step()
	d.mu.Lock()
	seen(uint64(len(d.jobs)))
	if len(d.jobs) == 0 {
		d.mu.Unlock()
		return false
	}
	job := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.mu.Unlock()
	job()
	return true
}

// pass gives the turn to an enlisted waiter, or releases it.
func (d *turn) pass() {
	for {
		for t, ok := d.next(); ok; t, ok = d.next() {
			if t.Offer() {
				d.mu.Lock()
				d.offers++
				d.mu.Unlock()
				return
			}
		}
		step()
		d.held.Store(false)
		// Somebody may have enlisted and looked between the empty list and the release.
		step()
		d.mu.Lock()
		none := seenBool(len(d.enlisted) == 0)
		d.mu.Unlock()
		if none || !d.take() {
			return
		}
	}
}

func (d *turn) Drive(done <-chan struct{}, w *Waiter) error {
	for !w.Settled() {
		if !d.take() {
			if !w.Announce() {
				return nil
			}
			d.enlist(w.Ticket()) // announced first: a ticket that is refused belongs to one who is gone
			if d.take() {
				if !w.Retract() { // settled: the turn is ours, so it is no offer
					w.Park(done)
				}
			} else {
				switch w.Park(done) {
				case SignalSettled, SignalCancelled:
					return nil
				}
			}
		}
		for !w.Settled() && seenBool(!over(done)) {
			if !d.work() {
				runtime.Gosched()
			}
		}
		d.pass()
		if over(done) && !w.Settled() {
			return nil
		}
	}
	return nil
}

// over reports whether the wait that done bounds is to end.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
