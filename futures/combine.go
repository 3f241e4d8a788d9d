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

// All consumes the futures and returns one that settles when all of them have, with their outcomes
// in the order of the arguments. Its own error is always nil. Misuse of an argument is that
// argument's error. If the returned future is discarded, each outcome goes to the Dispose of its
// pool. Awaiting it drives the first argument that was not settled and has a driver; callbacks run
// on the executor of the first argument that has one. All allocates the outcomes, a cell and its
// options, and one function per future.
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
	// left is counted down by each settler after it wrote its own outcome; zero publishes them all
	// to the last.
	var left atomic.Int64
	left.Store(int64(len(fs)))
	// Until all arguments are attached the last of them may settle p, but no other goroutine has f
	// yet.
	f.cell.driver = attachAll(fs, pools, func(i int, v T, err error) {
		out[i] = Outcome[T]{v, err}
		if left.Add(-1) == 0 {
			p.Settle(out, nil)
		}
	})
	return f
}

// Any consumes the futures and returns one that settles with the first of them that settles, with a
// value or an error: its value and index, and its error. It discards the others: each result goes
// to its pool's Dispose when it comes, as does the winner's if the returned future is discarded.
// Misuse of an argument counts as settled with that error. Without arguments the error is ErrEmpty.
// Driver and executor are chosen as in All. Any allocates a cell, its options, and one function per
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

// attachAll consumes each future and has it call each(i, ...) at once on the goroutine that settles
// it. It returns the first driver among them. For a misused handle it sets the entry in pools to
// nil: there is no result to dispose of.
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
