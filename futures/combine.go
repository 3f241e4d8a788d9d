package futures

import "sync/atomic"

// Outcome is the result of one of the futures of All.
type Outcome[T any] struct {
	Value T
	Err   error
}

// Indexed is the value of the future that settled first in Any, and its index among the arguments.
type Indexed[T any] struct {
	Index int
	Value T
}

// All consumes the futures and returns one that settles when all of them have settled. Its value is
// the list of their outcomes, in the order of the arguments; its error is always nil. Misuse of an
// argument gives that argument's Outcome a misuse error. If the returned future is discarded, each
// outcome goes to the Dispose of its pool. The returned future has the driver of the first argument
// that was not settled and has a driver, and the executor of the first argument that has one. All
// allocates the outcomes, a cell and its options, and one function per future.
func All[T any](fs ...Future[T]) Future[[]Outcome[T]] {
	out := make([]Outcome[T], len(fs))
	if len(fs) == 0 {
		return Ready(out, nil)
	}
	pools, execute := poolsOf(fs)
	p, f := derive(Options[[]Outcome[T]]{Execute: execute, Dispose: func(out []Outcome[T], _ error) {
		for i, o := range out {
			pools[i].dispose(o.Value, o.Err)
		}
	}})
	// Each settler writes its own outcome and then decrements left. The settler that reaches zero
	// sees all outcomes.
	var left atomic.Int64
	left.Store(int64(len(fs)))
	// p may be settled before attachAll returns. The driver may still be written then, because no
	// other goroutine has f yet.
	f.cell.driver = attachAll(fs, pools, func(i int, v T, err error) {
		out[i] = Outcome[T]{v, err}
		if left.Add(-1) == 0 {
			p.Settle(out, nil)
		}
	})
	return f
}

// Any consumes the futures and returns one that settles when the first of them settles, whether
// with a value or with an error. Its value is the value and the index of that future, its error
// that future's error. Any discards the other futures: each of their results goes to the Dispose of
// its pool when it comes. If the returned future is discarded, so does the first result. A misused
// argument counts as settled with the misuse error. Without arguments the error is ErrEmpty. Any
// chooses driver and executor as All does. It allocates a cell, its options, and one function per
// future.
func Any[T any](fs ...Future[T]) Future[Indexed[T]] {
	if len(fs) == 0 {
		return Ready(Indexed[T]{Index: -1}, ErrEmpty)
	}
	pools, execute := poolsOf(fs)
	p, f := derive(Options[Indexed[T]]{Execute: execute, Dispose: func(x Indexed[T], err error) {
		pools[x.Index].dispose(x.Value, err)
	}})
	f.cell.driver = attachAll(fs, pools, func(i int, v T, err error) {
		if !p.Settle(Indexed[T]{i, v}, err) {
			pools[i].dispose(v, err)
		}
	})
	return f
}

// poolsOf returns the pool of each future (nil: none) and the first executor among them.
func poolsOf[T any](fs []Future[T]) (pools []*Pool[T], execute func(func())) {
	pools = make([]*Pool[T], len(fs))
	for i, f := range fs {
		pools[i] = f.pool()
		if execute == nil {
			execute = pools[i].executor()
		}
	}
	return pools, execute
}

// attachAll consumes the futures. The goroutine that settles future i calls each(i, ...). attachAll
// returns the first driver among the futures. For a misused handle, which has no result to dispose
// of, it sets the entry in pools to nil.
func attachAll[T any](fs []Future[T], pools []*Pool[T], each func(i int, v T, err error)) (driver Driver) {
	for i, f := range fs {
		d, err := f.attach(func(v T, err error) { each(i, v, err) }, true)
		if err != nil {
			var none T
			pools[i] = nil
			each(i, none, err)
		}
		if driver == nil {
			driver = d
		}
	}
	return driver
}
