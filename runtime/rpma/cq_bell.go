package rpma

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// bell is a completion channel: of one CQ, or shared by the two of a connection. Goroutines wait until one
// of its CQs has a completion, and run the reactor meanwhile.
type bell struct {
	r     *reactor.Reactor
	pool  *futures.Pool[*bell]
	cqs   []*CQ      // of the channel; written before the first completion
	event *sys.Event // raised while a CQ has a completion, or for a moment longer

	// waiting is the length of waits. Written under mu; the holder of the reactor's turn reads it after it
	// has added a completion, so a goroutine that waits sees the completion, or the holder sees the wait.
	waiting atomic.Int32
	mu      sync.Mutex // guards the fields below; a holder locks it only if a goroutine waits
	waits   []futures.Promise[*bell]
	prune   int // the length of waits at which discarded ones are removed
	closed  bool
}

func newBell(p *Peer, r *reactor.Reactor) (*bell, error) {
	event, err := sys.NewEvent()
	return &bell{r: r, pool: p.waits, event: event}, err
}

// ring tells that a CQ has got a completion. Holder only.
func (b *bell) ring() {
	b.event.Signal()
	if b.waiting.Load() > 0 {
		b.wake()
	}
}

// wake wakes one of the goroutines that wait.
func (b *bell) wake() {
	b.mu.Lock()
	var p futures.Promise[*bell]
	n := len(b.waits)
	if n > 0 {
		p = b.waits[0]
		b.waits = slices.Delete(b.waits, 0, 1)
		b.waiting.Store(int32(len(b.waits)))
	}
	b.mu.Unlock()
	if n > 0 {
		p.Settle(b, nil)
	}
}

// disposeWait wakes another goroutine in the place of one that was woken and has stopped waiting.
func disposeWait(b *bell, err error) {
	if err == nil && b.ready() != nil {
		b.wake()
	}
}

// ready returns a CQ that has a completion, or nil.
func (b *bell) ready() *CQ {
	for _, c := range b.cqs {
		if !c.empty() {
			return c
		}
	}
	return nil
}

// quiet lowers the event, unless a CQ has a completion.
func (b *bell) quiet() {
	b.event.Drain()
	if b.ready() != nil { // it came between the look and Drain
		b.event.Signal()
	}
}

// wait waits until a CQ has a completion, and returns it. After close the error is runtime.ErrClosed.
func (b *bell) wait(ctx context.Context) (*CQ, error) {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return nil, err
	}
	for {
		if c := b.ready(); c != nil {
			return c, nil
		}
		f, err := b.register()
		if err != nil {
			return nil, err
		}
		if c := b.ready(); c != nil { // it came before register
			f.Discard()
			return c, nil
		}
		if _, err = reactor.Await(ctx, asked, f); err != nil {
			return nil, err
		}
	}
}

// pruneFrom is the smallest number of waits that is pruned: fewer take little memory.
const pruneFrom = 64

// register makes a future that is settled when there may be a completion.
func (b *bell) register() (f futures.Future[*bell], err error) {
	p, f := b.pool.New(b.r.Driver())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		p.Settle(nil, verbs.ErrClosed)
		f.Discard()
		return f, verbs.ErrClosed
	}
	b.waits = append(b.waits, p)
	if len(b.waits) >= max(b.prune, pruneFrom) {
		b.waits = slices.DeleteFunc(b.waits, unwanted)
		b.prune = 2 * len(b.waits)
	}
	b.waiting.Store(int32(len(b.waits)))
	return f, nil
}

// unwanted ends a wait whose future was discarded, because its context ended.
func unwanted(p futures.Promise[*bell]) bool {
	if p.Wanted() {
		return false
	}
	p.Settle(nil, futures.ErrDiscarded)
	return true
}

// close ends the waits. Completions of an SRQ can still be taken. It is idempotent.
func (b *bell) close() {
	b.mu.Lock()
	b.closed = true
	waits := b.waits
	b.waits = nil
	b.waiting.Store(0)
	b.mu.Unlock()
	for _, p := range waits {
		p.Settle(nil, verbs.ErrClosed)
	}
	_ = b.event.Close() // an eventfd, whose close reports nothing of use
}
