package runtime

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// opKind is a kind of operation of the simulation.
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
	outcomeGivenUp // the operation was accepted, and the caller discarded its future
	outcomeRefused // the operation was not accepted: no slot, no credit, or a failed connection
	outcomes
)

// simOp is one operation of an end.
type simOp struct {
	id     uint64
	kind   opKind
	e      *simEnd
	from   time.Duration // the virtual time at which the operation was accepted
	f      Future
	called bool   // the operation has a callback or a sink
	came   int    // number of calls of the callback or sink
	tag    uint64 // the tag that the sink must receive
	res    Result
	err    error

	settled bool
	// The method settle calls one of these functions, once.
	ok  func(Result) error // after success; returns an error if the result is wrong
	bad func(error)        // after failure
}

func (o *simOp) String() string { return fmt.Sprintf("operation %d (%s)", o.id, opKindNames[o.kind]) }

func (o *simOp) ready() bool {
	if o.called {
		return o.came > 0
	}
	return o.f.Settled()
}

// poll() settles the operation if its result has arrived. It reports whether the result has arrived.
func (o *simOp) poll() bool {
	w := o.e.w
	if o.called {
		if o.came > 1 {
			w.fail("the callback or sink of %v was called %d times, want once", o, o.came)
		}
		if o.came == 1 {
			o.settle(o.res, o.err)
		}
		return o.came > 0
	}
	if w.r.one(30) { // await with a context that has ended; if the result has not arrived, the next poll tries again
		res, err := o.f.Await(w.ended)
		if errors.Is(err, errGivenUp) && o.f.Valid() {
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
		if o.e.flushedAt == 0 { // simEnd.collect checks that the connection fails soon
			o.e.flushedAt = w.now()
		}
	} else if o.e.c.Err() == nil && !errors.Is(err, errGivenUp) {
		w.fail("%v: %v failed with %v, but its connection has not failed", o.e.p, o, err)
	}
	o.bad(err)
}

// begin counts an operation as accepted if err is nil, otherwise as refused. It reports whether the
// operation was accepted.
func (e *simEnd) begin(kind opKind, err error) bool {
	if err == nil {
		e.w.nextOp++
		e.w.issued++
		return true
	}
	e.refuse(kind, err, false)
	return false
}

// refuse() counts an operation that was refused with err. Unless the caller permits the refusal, the
// connection must have failed, or a queue must be full. If a queue is full, err is errGivenUp
// (operations get a context that has ended) or ErrRecvFull. On a removed device an operation that needs the
// memory of its request registered is refused before the event of the removal fails the connection.
func (e *simEnd) refuse(kind opKind, err error, permitted bool) {
	w := e.w
	permitted = permitted || e.cutOff && errors.Is(err, verbs.ErrDeviceRemoved)
	w.counts[kind][outcomeRefused]++
	if e.c.Err() == nil && !permitted && !errors.Is(err, errGivenUp) && !errors.Is(err, reactor.ErrRecvFull) {
		w.fail("%v: %s was refused with %v, but the connection has not failed, and no queue is full", e.p, opKindNames[kind], err)
	}
}

// accept counts an accepted operation, and sets o.id and o.from.
func (w *simWorld) accept(o *simOp) {
	w.nextOp++
	w.issued++
	o.id, o.from = w.nextOp, w.now()
}

// follow adds a send to the outstanding operations. Call follow after begin() has counted the send.
func (e *simEnd) follow(kind opKind, f Future, ok func(Result) error, bad func(error)) *simOp {
	o := &simOp{id: e.w.nextOp, kind: kind, e: e, from: e.w.now(), ok: ok, bad: bad}
	e.await(o, f)
	return o
}

// await() adds o to the outstanding operations. The argument f is the future of o, or the zero Future
// if o has a sink. Sometimes await() gives the future a callback.
func (e *simEnd) await(o *simOp, f Future) {
	o.f = f
	if f.Valid() && e.w.r.one(20) {
		o.called = true
		f.Then(func(res Result, err error) { o.came++; o.res, o.err = res, err })
	}
	e.ops = append(e.ops, o)
}

// giveUp discards the future of an accepted operation.
func (e *simEnd) giveUp(kind opKind, f Future) {
	e.w.counts[kind][outcomeGivenUp]++
	f.Discard()
}

// errorClass returns a number for the kind of an error, for the trace.
func errorClass(err error) int {
	var wc *verbs.WCError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wc):
		return 1 + int(wc.Status)
	}
	for i, s := range []error{errGivenUp, reactor.ErrClosed, reactor.ErrQueueFailed, ErrConnClosed, ErrPeerClosed, ErrUnreachable, ErrConnectTimeout} {
		if errors.Is(err, s) {
			return 100 + i
		}
	}
	return 200
}

// The ways to start an operation. Each accepted operation completes once. Operations complete in the
// order in which they were started, even if they were started in different ways.
const (
	wayMethod   = iota // Conn.Write, Conn.Send, …, or Conn.Start
	wayDo              // Batch.Start
	wayStart           // Conn.StartTo
	wayTryStart        // Conn.TryStartTo
	wayStartIn         // Conn.StartFromSink
	wayStartAll        // Batch.StartAll, with several operations
	wayDoAll           // Conn.DoAll, with several operations
	simWays
)

var simWayNames = [simWays]string{"method of Conn", "Batch.Start", "StartTo", "TryStartTo", "StartFromSink", "StartAll", "DoAll"}

// simWay counts the outcomes of operations started in one way.
type simWay struct {
	begun   int
	refused int
	short   int // calls that started only some of their operations
}

// simPlan is an operation that is planned and not yet started. Its effect is already in the model,
// so that the next operation can be planned.
type simPlan struct {
	*simOp
	what  Op
	call  func() (Future, error) // starts the operation with wayMethod
	undo  func()                 // removes the effect from the model; the newest plan is undone first
	begun func()                 // called when the operation was accepted
	drop  func()                 // if not nil, drop is called, and then the future of the operation is discarded
}

func (e *simEnd) planned(kind opKind) *simPlan {
	nothing := func() {}
	return &simPlan{simOp: &simOp{kind: kind, e: e, bad: noMatter}, undo: nothing, begun: nothing}
}

// start() starts p in one of the ways for a single operation, chosen at random. If p is nil, it does
// nothing.
func (e *simEnd) start(p *simPlan) {
	if p == nil {
		return
	}
	w := e.w
	switch k := w.r.IntN(8); k {
	case wayDo, wayStart, wayTryStart, wayStartIn:
		e.startBy(k, p, e.turn) // e.turn has expired, because no sink is running
	default:
		e.startBy(wayMethod, p, SinkContext{})
	}
}

func (e *simEnd) startBy(way int, p *simPlan, t SinkContext) {
	var f Future
	var err error
	switch w := e.w; way {
	case wayMethod:
		f, err = p.call()
	case wayDo:
		f, err = e.c.Batch().Start(w.ended, &p.what)
	case wayStart:
		err = e.c.StartTo(w.ended, &p.what, p.sink(), p.tag)
	case wayTryStart:
		err = e.c.TryStartTo(&p.what, p.sink(), p.tag)
	case wayStartIn:
		err = e.c.StartFromSink(t, &p.what, p.sink(), p.tag)
	}
	if err != nil {
		e.refused(way, p, err)
		return
	}
	e.accepted(way, p, f)
}

// accepted() counts p as started in this way. If p.drop is nil or p has no future, accepted() adds p to
// the outstanding operations. Otherwise it discards the future of p.
func (e *simEnd) accepted(way int, p *simPlan, f Future) {
	w := e.w
	w.ways[way].begun++
	w.accept(p.simOp)
	p.begun()
	if f.Valid() && p.drop != nil {
		p.drop()
		e.giveUp(p.kind, f)
		return
	}
	e.await(p.simOp, f)
}

// refused() counts p as refused in this way, and removes the effect of p from the model.
func (e *simEnd) refused(way int, p *simPlan, err error) {
	e.w.ways[way].refused++
	split := p.kind == opWriteSplit || p.kind == opReadSplit
	permitted := (way == wayTryStart || way == wayStartIn) && (errors.Is(err, ErrQueueFull) || split && errors.Is(err, ErrPieces))
	// While a sink runs, the queue may have failed although the connection has not failed yet.
	if e.inside && errors.Is(err, reactor.ErrQueueFailed) {
		permitted = true
		if e.flushedAt == 0 {
			e.flushedAt = e.w.now()
		}
	}
	e.refuse(p.kind, err, permitted)
	p.undo()
}

// startIn sometimes starts operations from a sink: most with StartFromSink, and some with TryStartTo.
// So the queue has requests of both methods.
func (e *simEnd) startIn(t SinkContext) {
	r := e.w.r
	e.turn = t
	if e.gone || e.closing || e.c.Err() != nil || !r.one(3) {
		return
	}
	e.inside, e.near = true, r.one(2)
	for n := r.between(1, 4); n > 0; n-- {
		p := e.plan(r.one(2))
		if p == nil {
			continue
		}
		way := wayStartIn
		if r.one(5) {
			way = wayTryStart
		}
		e.startBy(way, p, t)
	}
	e.inside, e.near = false, false
}

// sink() returns o, which is the sink of its own result, and chooses o.tag.
func (o *simOp) sink() Sink {
	o.called, o.tag = true, o.e.w.r.Uint64()
	return o
}

// Complete implements Sink. Complete runs at the end of a pass. There a panic of simWorld.fail would
// reach the reactor, so Complete calls simWorld.note instead. After the pass, simOp.poll handles the
// result.
func (o *simOp) Complete(t SinkContext, r Result, err error) {
	if r.Tag != o.tag {
		o.e.w.note("%v: %v completed with the tag %x, want %x", o.e.p, o, r.Tag, o.tag)
	}
	o.complete(r, err)
	o.e.startIn(t)
}

func (o *simOp) complete(r Result, err error) {
	e := o.e
	o.came++
	o.res, o.err = r, err
	switch {
	case o.came > 1:
		e.w.note("%v: %v completed %d times, want once", e.p, o, o.came)
	case o.id == 0:
		e.w.note("%v: %v completed, but it was not accepted", e.p, o)
	case o.id < e.lastCame && !e.cutOff: // when a device is removed, its unposted requests fail at once
		e.w.note("%v: %v completed after operation %d, which was started later", e.p, o, e.lastCame)
	}
	e.lastCame = o.id
}
