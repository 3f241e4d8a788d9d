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

// Reply answers one question: see [Ask]. The message of the question contains the Reply. A Reply is a
// value: the handler may keep it and answer later, from any goroutine. If the instance that handled
// the question ends without an answer, the asker gets ErrNoReply, even if a copy of the Reply still
// exists. The zero Reply drops answers.
type Reply[R any] struct{ p futures.Promise[R] }

// Send answers with v. It returns false if the question already has an answer or an error. True does
// not guarantee that the asker reads v: the asker may have given up. Send does not block.
func (r Reply[R]) Send(v R) bool { return r.p.Settle(v, nil) }

// Fail answers with an error, as Send does with a value.
func (r Reply[R]) Fail(err error) bool {
	var none R
	return r.p.Settle(none, err)
}

// Wanted reports whether the asker may still take the answer.
func (r Reply[R]) Wanted() bool { return r.p.Wanted() }

// owed is an unanswered reply of an actor.
type owed interface {
	fail(err error)
	wanted() bool // false if it was answered or the asker has given up; then it remains false
	free()        // after free, the owed reply must not be used
}

// asks makes the futures for answers of type R.
type asks[R any] struct {
	futures *futures.Pool[R]
	free    sync.Pool // of *ask[R]
}

// ask implements owed.
type ask[R any] struct {
	from *asks[R]
	p    futures.Promise[R]
}

func (a *ask[R]) fail(err error) {
	var none R
	a.p.Settle(none, err)
}

func (a *ask[R]) wanted() bool { return a.p.Wanted() }

// free implements owed. If the asker has given up, free settles the future, so that its memory
// returns to the pool.
func (a *ask[R]) free() {
	a.fail(futures.ErrDiscarded)
	a.p = futures.Promise[R]{}
	a.from.free.Put(a)
}

// asksOf returns the system's asks for answers of type R. The first call makes it.
func asksOf[R any](s *System) *asks[R] {
	t := reflect.TypeFor[R]()
	if v, ok := s.asks.Load(t); ok {
		return v.(*asks[R])
	}
	fresh := &asks[R]{futures: futures.NewPool(futures.Options[R]{Execute: s.pool.Go})}
	v, _ := s.asks.LoadOrStore(t, fresh)
	return v.(*asks[R])
}

// Ask sends a message and returns the future of the answer. It calls the function question once. This
// function makes the message, which must contain the Reply. ctx bounds the wait for room in the
// mailbox. The context of Await bounds the wait for the answer. In steady state Ask allocates
// nothing.
//
// The result of the future is one of these:
//
//   - the answer
//   - ErrNoReply, joined with its cause (a failure of the handler, or ErrStopped), if no answer will
//     come
//   - the error that Tell would return
//   - ErrMailboxFull, if Overflow Drop has dropped the message
//
// Discard a future that is no longer wanted.
func Ask[M, R any](ctx context.Context, to Ref[M], question func(Reply[R]) M) futures.Future[R] {
	if to.cell == nil {
		var none R
		return futures.Ready(none, ErrNoActor)
	}
	var from *asks[R]
	if last := to.cell.lastAsks.Load(); last != nil {
		from, _ = (*last).(*asks[R])
	}
	if from == nil {
		from = asksOf[R](to.cell.sys)
		last := any(from)
		to.cell.lastAsks.Store(&last)
	}
	p, f := from.futures.New(nil)
	a, _ := from.free.Get().(*ask[R])
	if a == nil {
		a = &ask[R]{from: from}
	}
	a.p = p
	if err := to.cell.tell(ctx, &envelope[M]{m: question(Reply[R]{p}), ask: a}); err != nil {
		a.fail(err)
		a.free()
	}
	return f
}

// AskWait asks as Ask does and waits for the answer until ctx ends. A handler must not call AskWait:
// it would occupy a goroutine that the answering actor may need. In a handler, AskWait returns
// ErrWouldDeadlock if ctx derives from the handler's Context, or never ends.
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
		f.Discard() // no effect if the future was settled
	}
	return v, err
}

// noReply returns the error that the asker gets if no answer will come because of cause.
func noReply(cause error) error { return errors.Join(ErrNoReply, cause) }

// pruneOwed is the smallest number of owed replies at which owe removes replies that are no longer
// wanted.
const pruneOwed = 64

// owe records the reply of a handled message, unless it was answered already or its asker has given
// up. Runner only.
func (a *core) owe(o owed) {
	if !o.wanted() {
		o.free()
		return
	}
	if len(a.owed) >= max(pruneOwed, a.owedMax) { // the list has doubled: the amortized cost is constant
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

// settleOwed fails all unanswered replies. Runner only.
func (a *core) settleOwed(err error) {
	for _, o := range a.owed {
		o.fail(err)
		o.free()
	}
	a.owed, a.owedMax = nil, 0
}
