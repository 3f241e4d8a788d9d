package runtime

import (
	"errors"

	"github.com/verbena-rdma/verbena/reactor"
)

// The ways to start an operation. All have the same rules: what was accepted completes
// once, in the order of starting, whichever way each was started.
const (
	wayMethod = iota // the connection's own
	wayDo
	wayStart
	wayTryStart
	wayStartIn  // from a sink
	wayStartAll // several
	wayDoAll    // likewise
	simWays
)

var simWayNames = [simWays]string{"method", "do", "start", "try start", "start in", "start all", "do all"}

// simWay counts what became of what was to be started in one way.
type simWay struct {
	begun   int
	refused int
	short   int // several of which only some were begun
}

// simPlan is an operation that is to be started. What it does is in the model as soon as
// it is planned, so that the next can be planned behind it; undo takes that back, of
// several the newest first.
type simPlan struct {
	*simOp
	what  Op
	call  func() (Future, error) // the connection's own method for it
	undo  func()
	begun func() // it was accepted
	drop  func() // nobody wants it any more, behind begun; nil: somebody does
}

func (e *simEnd) planned(kind opKind) *simPlan {
	nothing := func() {}
	return &simPlan{simOp: &simOp{kind: kind, e: e, bad: noMatter}, undo: nothing, begun: nothing}
}

// start starts p, in a way that suits one.
func (e *simEnd) start(p *simPlan) {
	if p == nil {
		return
	}
	w := e.w
	switch k := w.r.IntN(8); k {
	case wayDo, wayStart, wayTryStart, wayStartIn:
		e.startBy(k, p, e.turn) // which is over: nobody is called here
	default:
		e.startBy(wayMethod, p, Turn{})
	}
}

func (e *simEnd) startBy(way int, p *simPlan, t Turn) {
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

// accepted adds p to what is under way.
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

// refused takes p back.
func (e *simEnd) refused(way int, p *simPlan, err error) {
	e.w.ways[way].refused++
	split := p.kind == opWriteSplit || p.kind == opReadSplit
	may := (way == wayTryStart || way == wayStartIn) && (errors.Is(err, ErrQueueFull) || split && errors.Is(err, ErrPieces))
	if e.inside && errors.Is(err, reactor.ErrQueueFailed) { // what the sinks are told of is what the connection learns of
		may = true
		if e.flushedAt == 0 {
			e.flushedAt = e.w.now()
		}
	}
	e.refuse(p.kind, err, may)
	p.undo()
}

// startIn is what a sink goes on with: operations of the kinds that have a way
// of their own for that and others, so that each finds some of the other before it.
func (e *simEnd) startIn(t Turn) {
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

// sink is where the result of o goes, with its tag.
func (o *simOp) sink() Sink {
	o.called, o.tag = true, o.e.w.r.Uint64()
	return o
}

// Complete implements Sink. The simulation looks at the result when it collects: here it
// must not fail, in the middle of a turn.
func (o *simOp) Complete(t Turn, r Result, err error) {
	if r.Tag != o.tag {
		o.e.w.note("%v: %v came with the tag %x of another", o.e.p, o, r.Tag)
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
		e.w.note("%v: %v completed %d times", e.p, o, o.came)
	case o.id == 0:
		e.w.note("%v: %v completed, which was not accepted", e.p, o)
	case o.id < e.lastCame && !e.cutOff: // what was never posted to a removed device fails at once
		e.w.note("%v: %v completed after operation %d", e.p, o, e.lastCame)
	}
	e.lastCame = o.id
}
