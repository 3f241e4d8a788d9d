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

// Reply is the handle with which a handler answers the question that carried it in its message. It
// is a value: the handler may keep it and answer later, from any goroutine. If the instance that
// handled the question ends without an answer, the asker gets ErrNoReply, even if a copy of the
// Reply still exists. The zero Reply drops answers.
type Reply[R any] struct{ p futures.Promise[R] }

// Send answers with v. It returns false if v reaches no asker: an answer or ErrNoReply came before,
// or the asker has given up. True does not guarantee that the asker reads v. Send does not block.
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
	wanted() bool // false is final: answered, or given up by the asker
	free()        // the caller must not use the owed reply any more
}

// asks makes the futures of one type of answer.
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

// asksOf returns the system's asks for answers of type R, and makes it at the first call.
func asksOf[R any](s *System) *asks[R] {
	t := reflect.TypeFor[R]()
	if v, ok := s.asks.Load(t); ok {
		return v.(*asks[R])
	}
	fresh := &asks[R]{futures: futures.NewPool(futures.Options[R]{Execute: s.pool.Go})}
	v, _ := s.asks.LoadOrStore(t, fresh)
	return v.(*asks[R])
}

// Ask sends a message and returns the future of the answer. It calls the function question once, to
// make the message with a Reply. ctx bounds the wait for room in the mailbox; the context of Await
// bounds the wait for the answer. In steady state Ask allocates nothing.
//
// The future is settled with the answer. If no answer will come, it is settled with ErrNoReply,
// joined with the handler's panic or ErrStopped. If Tell would return an error, it is settled with
// that error, and if Overflow Drop drops the message, with ErrMailboxFull. Discard a future that is
// no longer wanted.
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

// AskWait asks as Ask does and waits for the answer until ctx ends. A handler must not call it: the
// wait would keep other actors from running, perhaps the one that answers. AskWait returns
// ErrWouldDeadlock in a handler if ctx derives from the handler's Context or never ends.
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
		f.Discard() // no effect if it was settled
	}
	return v, err
}

// noReply returns the error that the asker gets when cause prevents the answer.
func noReply(cause error) error { return errors.Join(ErrNoReply, cause) }

// pruneOwed is the smallest number of owed replies at which owe removes those no longer wanted.
const pruneOwed = 64

// owe records the reply of a handled message, unless it was answered already or its asker has given
// up. Runner only.
func (a *core) owe(o owed) {
	if !o.wanted() {
		o.free()
		return
	}
	if len(a.owed) >= max(pruneOwed, a.owedMax) { // length doubled: constant amortized cost
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
