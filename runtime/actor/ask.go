package actor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Reply is where the answer to a question goes; it travels in the message. It is a
// value: the handler may keep it and answer later, from any goroutine. When the
// instance that handled the question ends without an answer, the asker gets
// ErrNoReply, whoever has the Reply then. The zero Reply drops answers.
type Reply[R any] struct{ p futures.Promise[R] }

// Send answers. False: nobody gets it, because it was answered before, or the asker
// was told that no answer will come, or does not wait any more. True is no promise
// of the opposite. It does not block.
func (r Reply[R]) Send(v R) bool { return r.p.Settle(v, nil) }

// Fail answers with an error; otherwise as Send.
func (r Reply[R]) Fail(err error) bool {
	var none R
	return r.p.Settle(none, err)
}

// Wanted tells whether somebody may still take the answer.
func (r Reply[R]) Wanted() bool { return r.p.Wanted() }

// owed is a reply that an actor owes.
type owed interface {
	fail(err error)
	wanted() bool // false is final: it was answered, or the asker has given up
	free()        // the caller forgets it
}

// asks makes the futures of one type of answers.
type asks[R any] struct {
	futures *futures.Pool[R]
	free    sync.Pool // of *ask[R]
}

// ask is an owed reply.
type ask[R any] struct {
	from *asks[R]
	p    futures.Promise[R]
}

func (a *ask[R]) fail(err error) {
	var none R
	a.p.Settle(none, err)
}

func (a *ask[R]) wanted() bool { return a.p.Wanted() }

// free settles the future of an asker who has given up, so that its memory goes
// back to the pool.
func (a *ask[R]) free() {
	a.fail(futures.ErrDiscarded)
	a.p = futures.Promise[R]{}
	a.from.free.Put(a)
}

// asksOf finds or makes the system's asks of one type.
func asksOf[R any](s *System) *asks[R] {
	t := reflect.TypeFor[R]()
	if v, ok := s.asks.Load(t); ok {
		return v.(*asks[R])
	}
	fresh := &asks[R]{futures: futures.NewPool(futures.Options[R]{Execute: s.pool.Go})}
	v, _ := s.asks.LoadOrStore(t, fresh)
	return v.(*asks[R])
}

// Ask sends the message that question makes with a Reply, and returns the future of the
// answer. question is called once, at once. Waiting for room in the mailbox is on
// ctx; for the answer, on Await's. In steady state it allocates nothing.
//
// The future is settled with the answer, or with ErrNoReply when none will come:
// joined with what the handler failed with, if it panicked, or ErrStopped. A future that is
// not wanted any more is to be discarded. When Tell would return an error, the future
// is settled with it; a message that Drop drops, with ErrMailboxFull.
func Ask[M, R any](ctx context.Context, to Ref[M], question func(Reply[R]) M) futures.Future[R] {
	if to.cell == nil {
		var none R
		return futures.Ready(none, ErrNoActor)
	}
	from := asksOf[R](to.cell.sys)
	p, f := from.futures.New(nil)
	a, _ := from.free.Get().(*ask[R])
	if a == nil {
		a = &ask[R]{from: from}
	}
	a.p = p
	if err := to.cell.tell(ctx, envelope[M]{m: question(Reply[R]{p}), ask: a}); err != nil {
		a.fail(err)
		a.free()
	}
	return f
}

// AskWait is Ask that waits for the answer until ctx ends. Not from a handler: it
// would keep others from running, and perhaps the one who is to answer.
// ErrWouldDeadlock in a handler that gives its context, or one that never ends.
func AskWait[M, R any](ctx context.Context, to Ref[M], question func(Reply[R]) M) (R, error) {
	if ctx == nil {
		var none R
		return none, verbena.ErrNilContext
	}
	if ctx.Value(insideKey{}) != nil || ctx.Done() == nil && inside(ctx) {
		var none R
		return none, fmt.Errorf("%w: AskWait in a handler; Tell, and have the answer told", ErrWouldDeadlock)
	}
	f := Ask(ctx, to, question)
	v, err := f.Await(ctx)
	if err != nil {
		f.Discard() // nothing, if it was settled
	}
	return v, err
}

// noReply is what an asker gets when cause keeps the answer from coming.
func noReply(cause error) error { return errors.Join(ErrNoReply, cause) }

// pruneOwed is how many owed replies are worth looking through.
const pruneOwed = 64

// owe notes that the handler has returned; perhaps without an answer. Runner only.
func (a *core) owe(o owed) {
	if !o.wanted() {
		o.free()
		return
	}
	if len(a.owed) >= max(pruneOwed, a.owedMax) { // whenever they have doubled: each costs a constant
		a.owed = slices.DeleteFunc(a.owed, func(o owed) bool {
			if o.wanted() {
				return false
			}
			o.free()
			return true
		})
		a.owedMax = 2 * len(a.owed)
	}
	a.owed = append(a.owed, o)
}

// settleOwed tells all who still wait that nobody will answer. Runner only.
func (a *core) settleOwed(err error) {
	for _, o := range a.owed {
		o.fail(err)
		o.free()
	}
	a.owed, a.owedMax = nil, 0
}
