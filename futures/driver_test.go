package futures

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/model"
)

// turn is a complete but minimal Driver: the holder of the turn settles the jobs of all callers.
// The model test and the stress test run it.
type turn struct {
	held atomic.Bool // the turn is held, or an accepted offer of it is on its way

	mu       sync.Mutex // guards the fields below
	enlisted []Ticket
	jobs     []func()
	offers   int // accepted
}

func (d *turn) take() bool { model.Yield("turn.1"); return saw(d.held.CompareAndSwap(false, true)) }

func (d *turn) post(job func()) {
	model.Yield("turn.2")
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
}

func (d *turn) enlist(t Ticket) {
	model.Yield("turn.3")
	d.mu.Lock()
	d.enlisted = append(d.enlisted, t)
	model.Learn(uint64(len(d.enlisted)))
	d.mu.Unlock()
}

func (d *turn) next() (t Ticket, ok bool) {
	model.Yield("turn.4")
	d.mu.Lock()
	defer d.mu.Unlock()
	model.Learn(uint64(len(d.enlisted)))
	if len(d.enlisted) == 0 {
		return t, false
	}
	t, d.enlisted = d.enlisted[0], d.enlisted[1:]
	return t, true
}

// work does one job; it returns false if there is none.
func (d *turn) work() bool {
	model.Yield("turn.5")
	d.mu.Lock()
	model.Learn(uint64(len(d.jobs)))
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
		model.Yield("turn.6")
		d.held.Store(false)
		// A waiter may have enlisted and looked between the empty list and the release.
		model.Yield("turn.7")
		d.mu.Lock()
		none := saw(len(d.enlisted) == 0)
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
			d.enlist(w.Ticket()) // announced first: a refused ticket belongs to a waiter that is gone
			if d.take() {
				if !w.Retract() { // settled: this goroutine holds the turn, so the signal is no offer
					w.Park(done)
				}
			} else {
				switch w.Park(done) {
				case SignalSettled, SignalCancelled:
					return nil
				}
			}
		}
		for !w.Settled() && saw(!over(done)) {
			if !d.work() {
				runtime.Gosched()
			}
		}
		d.pass()
		if saw(over(done)) && !w.Settled() {
			return nil
		}
	}
	return nil
}

// over reports whether done is closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// saw tells the model the value that was read.
func saw(is bool) bool {
	if is {
		model.Learn(1)
	} else {
		model.Learn(0)
	}
	return is
}
