package runtime

import "errors"

// The functions of this file start several operations in one call of StartAll or DoAll. The context of
// the call has ended, so the call does not wait for a slot. If the queue becomes full, the call does not
// start the remaining operations.

// several() plans a few operations, or about as many operations as one batch may have
// (reactor.MaxSubmitBatch, 32).
func (e *simEnd) several() (plans []*simPlan, ops []Op) {
	r := e.w.r
	n := r.between(1, 12)
	if r.one(6) {
		n = r.between(30, 50)
	}
	e.near = r.one(2)
	for range n {
		if p := e.plan(!r.one(4)); p != nil {
			plans, ops = append(plans, p), append(ops, p.what)
		}
	}
	e.near = false
	return plans, ops
}

// startSeveral starts several operations with StartAll.
func (e *simEnd) startSeveral() {
	plans, ops := e.several()
	fs := make([]Future, len(ops))
	n, err := e.c.Batch().StartAll(e.w.ended, ops, fs)
	for i, f := range fs {
		if f.Valid() != (i < n) {
			e.w.fail("%v: StartAll started %d of %d operations (error %v); does operation %d have a future? %t, want %t", e.p, n, len(ops), err, i, f.Valid(), i < n)
		}
	}
	e.begun(wayStartAll, plans, fs, n, err)
}

// begun() records that the first n plans were started. If n < len(plans), plans[n] was refused with err,
// and begun() undoes the plans from plans[n] on.
func (e *simEnd) begun(way int, plans []*simPlan, fs []Future, n int, err error) {
	if (n == len(plans)) != (err == nil) {
		e.w.fail("%v: %d of %d operations were started, and the error is %v; want an error if, and only if, an operation was not started", e.p, n, len(plans), err)
	}
	for i := len(plans) - 1; i > n; i-- {
		plans[i].undo()
	}
	if n < len(plans) {
		e.refused(way, plans[n], err)
		if n > 0 {
			e.w.ways[way].short++
		}
	}
	for i, p := range plans[:n] {
		e.accepted(way, p, fs[i])
	}
}

// simJoined models a DoAll that does not block. Instead of waiting, the simulation calls
// simJoined.poll until poll returns true. A simJoined is the sink of its operations. It records each
// result and passes the result on to the opGroup of the DoAll.
type simJoined struct {
	e       *simEnd
	ops     []*simPlan
	j       *opGroup
	all     Future // settled when all started operations have ended
	started int    // how many operations were started
	refused error  // the error of the first operation that was not started; nil: all were started
	keep    bool   // the caller of the DoAll wants the results
}

// doSeveral starts several operations as DoAll does.
func (e *simEnd) doSeveral() {
	plans, ops := e.several()
	if len(ops) == 0 {
		return
	}
	r := e.w.r
	g := &simJoined{e: e, ops: plans, j: opGroups.Get().(*opGroup), keep: !r.one(3)}
	for _, p := range plans {
		p.called = true
	}
	g.all, g.started, g.refused = g.j.start(e.w.ended, e.c, ops, g.keep, g)
	e.begun(wayDoAll, plans, make([]Future, len(ops)), g.started, g.refused)
	if r.one(8) { // as if the context of the DoAll ended
		g.all.Discard()
		return
	}
	e.joined = append(e.joined, g)
}

// Complete implements Sink.
func (g *simJoined) Complete(t SinkContext, r Result, err error) {
	o := g.ops[r.Tag]
	o.complete(r, err)
	if g.e.w.r.one(8) { // StartFromSink with a zero SinkContext does what TryStartTo does
		t = SinkContext{}
	}
	g.j.Complete(t, r, err)
	g.e.startIn(t)
}

// poll() reports whether all started operations have ended. If all have ended, poll() also checks the
// result of the DoAll.
func (g *simJoined) poll() bool {
	w, p := g.e.w, g.e.p
	if _, err, ok := g.all.Poll(); !ok {
		return false
	} else if err != nil {
		w.fail("%v: the future of a DoAll failed with %v, want success", p, err)
	}
	want, why := g.started, g.refused
	for i, o := range g.ops[:g.started] {
		if o.came != 1 {
			w.fail("%v: %v completed %d times before the future of its DoAll was settled, want once", p, o, o.came)
		}
		if o.err != nil && i < want {
			want, why = i, o.err
		}
	}
	var rs []Result
	if g.keep {
		rs = make([]Result, len(g.ops))
	}
	n, err := g.j.finish(rs, g.refused)
	if n != want || !errors.Is(err, why) || (err == nil) != (why == nil) {
		w.fail("%v: the DoAll of %d operations returned %d and the error %v; want %d and %v", p, len(g.ops), n, err, want, why)
	}
	for i, r := range rs {
		if o := g.ops[i]; o.came == 1 && o.err == nil && r != o.res || (o.came == 0 || o.err != nil) && r != (Result{}) {
			w.fail("%v: %v: its sink got the result %+v, and the DoAll returned the result %+v; want the same result after success, otherwise the zero Result", p, o, o.res, r)
		}
	}
	return true
}

// takeJoined removes the groups whose started operations have all ended.
func (e *simEnd) takeJoined() {
	kept := e.joined[:0]
	for _, g := range e.joined {
		if !g.poll() {
			kept = append(kept, g)
		}
	}
	clear(e.joined[len(kept):])
	e.joined = kept
}

// untold() is called when the connection is closed. It returns true if the future of a DoAll is not
// settled yet. This is permitted once, because opGroup.setTotal may run only in the next pass. If the
// future is not settled in the next call of untold() either, the run fails.
func (e *simEnd) untold() bool {
	if len(e.joined) == 0 {
		return false
	}
	if e.overdue {
		e.w.fail("%v: the connection is closed, but the future of a DoAll is not settled", e.p)
	}
	e.overdue = true
	return true
}
