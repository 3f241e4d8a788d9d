package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// What the simulation does.
type opKind uint8

const (
	opSendInline opKind = iota
	opSendCopied
	opSend
	opSendV
	opWrite
	opWriteV
	opWriteImm
	opWriteImmV
	opWriteSplit
	opRead
	opReadV
	opReadSplit
	opReadSource
	opCAS
	opFAA
	opShared
	opRecv
	opPostRecv
	opSharedRecv
	opAtomicWrite
	opFlush
	opBind
	opInvalidate
	opSendInvalidate
	opDatagram
	opRecvDatagram
	opDeadKey
	opWrongKey
	opKinds
)

var opKindNames = [opKinds]string{
	"send inline", "send copied", "send", "send gathered", "write", "write gathered", "write imm",
	"write imm gathered", "write split", "read", "read scattered", "read split", "read source", "compare and swap",
	"fetch and add", "shared counter", "recv", "post recv", "shared recv", "atomic write", "flush",
	"bind window", "invalidate", "send invalidate", "datagram", "recv datagram", "dead key", "wrong key",
}

const (
	outcomeOK = iota
	outcomeFailed
	outcomeGivenUp // somebody stopped waiting; it completed all the same
	outcomeRefused // there was no room, no credit, or the connection had failed: it was never begun
	outcomes
)

// simOp is an accepted operation. Exactly one of ok and bad is called, once.
type simOp struct {
	id   uint64
	kind opKind
	e    *simEnd
	from time.Duration // when it was accepted
	f    Future
	// came is how often the callback or the sink was called, of an operation that has one.
	called bool
	came   int
	tag    uint64 // of the sink's
	res    Result
	err    error

	settled bool
	ok      func(Result) error
	bad     func(error)
}

func (o *simOp) String() string { return fmt.Sprintf("operation %d (%s)", o.id, opKindNames[o.kind]) }

func (o *simOp) ready() bool {
	if o.called {
		return o.came > 0
	}
	return o.f.Settled()
}

// poll takes the result if it has come.
func (o *simOp) poll() bool {
	w := o.e.w
	if o.called {
		if o.came > 1 {
			w.fail("%v was called back %d times", o, o.came)
		}
		if o.came == 1 {
			o.settle(o.res, o.err)
		}
		return o.came > 0
	}
	if w.r.one(30) { // stop waiting, and come back later
		res, err := o.f.Await(w.ended)
		if errors.Is(err, context.Canceled) && o.f.Valid() {
			return false
		}
		o.settle(res, err)
		return true
	}
	res, err, ok := o.f.Poll()
	if ok {
		o.settle(res, err)
	}
	return ok
}

func (o *simOp) settle(res Result, err error) {
	w := o.e.w
	if o.settled {
		w.fail("%v is settled twice", o)
	}
	o.settled = true
	w.trace.note(o.id, uint64(errorClass(err)), uint64(res.Bytes), uint64(res.Kind), uint64(w.now()))
	if err == nil {
		w.counts[o.kind][outcomeOK]++
		if o.kind != opPostRecv {
			o.e.lastOK = o.id
		}
		if err = o.ok(res); err != nil {
			w.fail("%v: %v: %v", o.e.p, o, err)
		}
		return
	}
	w.counts[o.kind][outcomeFailed]++
	if wc, ok := errors.AsType[*verbs.WCError](err); ok && wc.Status == verbs.WCWRFlushErr && o.e.c.Err() == nil {
		if o.e.flushedAt == 0 { // the reason is on its way
			o.e.flushedAt = w.now()
		}
	} else if o.e.c.Err() == nil && !errors.Is(err, context.Canceled) {
		w.fail("%v: %v failed (%v), but the connection is well", o.e.p, o, err)
	}
	o.bad(err)
}

// begin counts an operation that was accepted; false, with the reason counted,
// if it was refused.
func (e *simEnd) begin(kind opKind, err error) bool {
	if err == nil {
		e.w.nextOp++
		e.w.issued++
		return true
	}
	e.refuse(kind, err, false)
	return false
}

// refuse counts an operation that was refused. There must be a reason: the connection
// has failed, nobody waits for room, or may says that there is one.
func (e *simEnd) refuse(kind opKind, err error, may bool) {
	w := e.w
	w.counts[kind][outcomeRefused]++
	if e.c.Err() == nil && !may && !errors.Is(err, context.Canceled) && !errors.Is(err, reactor.ErrRecvFull) {
		w.fail("%v: %s refused: %v", e.p, opKindNames[kind], err)
	}
}

// accept counts an operation that was accepted.
func (w *simWorld) accept(o *simOp) {
	w.nextOp++
	w.issued++
	o.id, o.from = w.nextOp, w.now()
}

// follow adds an accepted send to those under way.
func (e *simEnd) follow(kind opKind, f Future, ok func(Result) error, bad func(error)) *simOp {
	o := &simOp{id: e.w.nextOp, kind: kind, e: e, from: e.w.now(), ok: ok, bad: bad}
	e.await(o, f)
	return o
}

// await adds o to those under way; f is its future, unless it has a sink.
func (e *simEnd) await(o *simOp, f Future) {
	o.f = f
	if f.Valid() && e.w.r.one(20) {
		o.called = true
		f.Then(func(res Result, err error) { o.came++; o.res, o.err = res, err })
	}
	e.ops = append(e.ops, o)
}

// giveUp is for an accepted operation that nobody wants any more.
func (e *simEnd) giveUp(kind opKind, f Future) {
	e.w.counts[kind][outcomeGivenUp]++
	f.Discard()
}

// errorClass is an error for the trace: what it is, not what it says.
func errorClass(err error) int {
	var wc *verbs.WCError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wc):
		return 1 + int(wc.Status)
	}
	for i, s := range []error{context.Canceled, reactor.ErrClosed, reactor.ErrQueueFailed, ErrConnClosed, ErrPeerClosed, ErrUnreachable, ErrConnectTimeout} {
		if errors.Is(err, s) {
			return 100 + i
		}
	}
	return 200
}
