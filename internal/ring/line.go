package ring

import (
	"errors"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/sentinel"
)

// ErrClosed says that the credits or slots were closed, ErrDone that the channel which
// bounds a wait was closed first.
var (
	ErrClosed = sentinel.Closed
	ErrDone   = errors.New("ring: the wait was given up")
)

// line is the goroutines that wait for a thing of a store, in order: a slot of [Slots], one
// of [Credits]. Whoever puts one into the store hands it out, through a channel of the Go
// runtime.
//
//	        the store has one, nobody waits
//	start ----------------------------------> has it ----------> put:
//	  |                                          ^         to the store, and while
//	  | waiting+1                                |         somebody waits: out of it,
//	  v              handed                      |         waiting-1, handed
//	waits ---------------------------------------+
//	  |
//	  | done or closed
//	  v
//	leaves --- waiting > 0: waiting-1 ------------> error
//	  |        (one waiter fewer; nothing was meant for us)
//	  |
//	  +------- waiting = 0: something is under way for each who waits,
//	           so for us: take it, put it --------> error
//
// What holds, with W the goroutines in "waits" or "leaves" and K the things handed or
// about to be: W = waiting + K. And nobody waits beside a free one: if there is one
// in the store while waiting > 0, somebody is about to hand it out. Who puts it there
// looks at waiting afterwards; who makes waiting 1 looks at the store afterwards; of
// two who do that at once at least one sees the other; and who hands out goes on
// until the store is empty or nobody waits.
//
// A waiter that leaves in the second way waits for one that is between its two steps: for
// some instructions, or, if the scheduler took that goroutine away just there, until it runs
// again. Nobody else ever waits for another goroutine's step.
type line[T any] struct {
	// waiting is described above. Written by waiters, leavers and those who hand
	// out; read by everyone before he takes from the store. It publishes nothing.
	waiting atomic.Int64
	_       pad

	handed chan T // as many places as things: sending never blocks
	done   chan struct{}
	// closed is set by Close before it closes done; read by waiters.
	closed atomic.Bool
}

// store is what a line is for.
type store[T any] interface {
	take() (T, bool)
	// put gives back what take gave, and hands out.
	put(T)
}

func (l *line[T]) init(n int) { l.handed, l.done = make(chan T, n), make(chan struct{}) }

// wait takes a thing of s, waiting for one if there is none. Who waits longer is served
// first, as the channel of the Go runtime has it; a newcomer never overtakes. It does not
// allocate. With an error the caller has nothing, and nothing was lost. broken, which may be
// nil, is closed if what is under way for a leaver may never come.
func (l *line[T]) wait(s store[T], done, broken <-chan struct{}) (v T, err error) {
	if l.closed.Load() {
		return v, ErrClosed
	}
	if l.waiting.Add(1) == 1 {
		l.handOut(s)
	}
	select {
	case v = <-l.handed:
		return v, nil
	case <-done:
		err = ErrDone
	case <-l.done:
		err = ErrClosed
	}
	l.leave(s, broken)
	return v, err
}

// leave ends the wait of a goroutine that took nothing. If something is on its way already
// it is taken and given back.
func (l *line[T]) leave(s store[T], broken <-chan struct{}) {
	if !l.strike() {
		select {
		case v := <-l.handed:
			s.put(v)
		case <-broken:
		}
	}
}

// strike takes one from waiting; false: nobody waits any more for whom nothing is
// under way.
func (l *line[T]) strike() bool {
	for {
		n := l.waiting.Load()
		if n == 0 {
			return false
		}
		if l.waiting.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// handOut moves things from the store to those who wait. It reports false if one was given
// back twice, so that there are more than places for them.
func (l *line[T]) handOut(s store[T]) bool {
	for l.waiting.Load() > 0 {
		v, ok := s.take()
		if !ok {
			return true
		}
		if !l.strike() {
			s.put(v) // which looks again: somebody may have come just now
			return true
		}
		select {
		case l.handed <- v:
		default:
			return false
		}
	}
	return true
}

// Waiting is the number of goroutines that wait right now and for whom nothing is under
// way.
func (l *line[T]) Waiting() int { return int(l.waiting.Load()) }

// Close makes all waiters and all later ones fail; what is out may still be given back. It
// is idempotent, does not block, and any goroutine may call it.
func (l *line[T]) Close() {
	if l.closed.CompareAndSwap(false, true) {
		close(l.done)
	}
}
