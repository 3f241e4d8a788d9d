package futures

import "sync"

// Options are the options of a Pool. The zero value works.
type Options[T any] struct {
	// Dispose is called once with each result that will not be taken: the result of a discarded
	// future, and those of the futures that did not settle first in Any. It runs on the goroutine
	// that settles the future, or on the one that discards a settled future; it must not block.
	// Default: such results are dropped.
	Dispose func(T, error)

	// Execute is called with a function that runs a callback of Then or Map. The goroutine that
	// settles calls it, or the one that calls Then on a settled future. Execute should queue the
	// function for the goroutine where callbacks belong. It must not block, and each function must
	// run exactly once. Default: callbacks run at once, on the goroutine that would call Execute.
	Execute func(func())
}

// Pool makes promises whose memory is reused after the result was consumed. It keeps the memory in
// a sync.Pool and takes no lock. It may be used from any goroutine and must not be copied.
type Pool[T any] struct {
	opt    Options[T]
	cells  sync.Pool // of *cell[T], whose word is a fresh generation without flags
	single bool      // the pool only holds the options of one derived future; its cell is not reused
}

// NewPool returns a pool with these options. It never blocks.
func NewPool[T any](o Options[T]) *Pool[T] { return &Pool[T]{opt: o} }

// New returns the two ends of a new operation. d is the operation's driver; if it is nil, waiters
// park. New never blocks and may be called from any goroutine. In steady state it allocates
// nothing; after the garbage collector has emptied the pool, New allocates a cell.
func (p *Pool[T]) New(d Driver) (Promise[T], Future[T]) {
	c := p.fresh()
	c.driver = d
	gen := c.word.Load()
	return Promise[T]{c, gen}, Future[T]{c, gen}
}

// fresh returns a cell that no other goroutine has.
func (p *Pool[T]) fresh() *cell[T] {
	if c, _ := p.cells.Get().(*cell[T]); c != nil {
		return c
	}
	return &cell[T]{pool: p}
}

// Ready returns a future that is already settled. Otherwise it is like New.
func (p *Pool[T]) Ready(v T, err error) Future[T] {
	pr, f := p.New(nil)
	pr.Settle(v, err)
	return f
}

// New returns the two ends of an operation without a pool: it has no driver, executor or Dispose.
// It never blocks and may be called from any goroutine. It allocates one cell.
func New[T any]() (Promise[T], Future[T]) {
	c := new(cell[T])
	return Promise[T]{c, 0}, Future[T]{c, 0}
}

// Ready returns a future without a pool that is already settled. It allocates one cell.
func Ready[T any](v T, err error) Future[T] {
	p, f := New[T]()
	p.Settle(v, err)
	return f
}

// put takes back a cell that was consumed. p may be nil, as in the methods below.
func (p *Pool[T]) put(c *cell[T]) {
	if p != nil && !p.single {
		p.cells.Put(c)
	}
}

func (p *Pool[T]) dispose(v T, err error) {
	if p != nil && p.opt.Dispose != nil {
		p.opt.Dispose(v, err)
	}
}

func (p *Pool[T]) executor() func(func()) {
	if p == nil {
		return nil
	}
	return p.opt.Execute
}

// call runs a callback on the executor, or directly without one.
func (p *Pool[T]) call(fn func(T, error), v T, err error) {
	if ex := p.executor(); ex != nil {
		ex(func() { fn(v, err) })
		return
	}
	fn(v, err)
}

// derive returns the two ends of a new operation with its own options, whose cell is not reused.
func derive[T any](o Options[T]) (Promise[T], Future[T]) {
	c := &cell[T]{pool: &Pool[T]{opt: o, single: true}}
	return Promise[T]{c, 0}, Future[T]{c, 0}
}
