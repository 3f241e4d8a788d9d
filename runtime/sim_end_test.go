package runtime

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// simEnd is one end of a connection and what is under way there.
type simEnd struct {
	p    *simPair
	w    *simWorld
	side int
	n    *simNode
	c    *Conn
	to   *simArea // the peer's memory

	ops     []*simOp // sends, in the order in which they were accepted
	lastOK  uint64   // the last of them that succeeded
	joined  []*simJoined
	overdue bool     // gone, and somebody waits for several
	recvs   []*simOp // receives of a raw connection, likewise
	wants   []futures.Future[Message]
	windows []*simWindow
	held    []simHeld

	home    chan struct{} // of Cancel, while it waits
	homeBy  time.Duration // it must be closed by then
	closing bool          // Close or Abort was called here
	closeBy time.Duration // it must be gone by then
	sawEnd  bool          // all that arrived was received, and then the cause
	noted   bool          // the failure is in the counts
	gone    bool
	cutOff  bool // its device was removed: what had arrived there is lost

	lastCame uint64 // the last that a sink was told of
	turn     Turn   // the last that a sink was called with
	near     bool   // what is planned shares one region
	inside   bool   // a sink is being called

	movedAt time.Duration // when the last send ended, or there was none
	shunned bool          // its peer became mute: another bound holds
	muteTo  time.Duration // it posts no receives until then

	flushedAt time.Duration // an operation was flushed before the connection knew why
}

func (e *simEnd) String() string {
	return fmt.Sprintf("end %d: state %d, cause %v, %d sends, %d receives, %d wants, %d held, closing %t, saw the end %t, gone %t",
		e.side, e.c.state, e.c.Err(), len(e.ops), len(e.recvs), len(e.wants), len(e.held), e.closing, e.sawEnd, e.gone)
}

// in is what comes here, out what goes from here.
func (e *simEnd) in() *simStream  { return &e.p.streams[1-e.side] }
func (e *simEnd) out() *simStream { return &e.p.streams[e.side] }

// act starts operations.
func (e *simEnd) act() {
	if e.gone {
		return
	}
	r := e.w.r
	if e.p.raw {
		for !e.shares() && !e.cutOff && e.w.now() >= e.muteTo && r.one(2) && len(e.recvs) < 24 && e.c.Err() == nil {
			e.postRecv()
		}
	} else if len(e.wants) < 4 && !e.sawEnd && !r.one(3) {
		e.wants = append(e.wants, e.c.Recv())
		e.w.issued++
	}
	e.giveUpWaiting()
	if e.closing && r.one(20) { // no patience: what is out is cut off
		e.c.Abort()
	}
	if e.c.Err() != nil {
		if !e.closing && (e.p.raw || e.sawEnd || r.one(40)) && r.one(3) {
			e.close(r.one(2))
		}
		return
	}
	if r.one(simCancels) {
		e.cancel()
		return
	}
	for n := r.between(0, 3); n > 0; n-- {
		if e.cutOff {
			e.start(e.plan(false))
			continue
		}
		e.operate()
	}
}

// collect takes results and messages, and looks at the end of the connection.
func (e *simEnd) collect() {
	if e.gone {
		return
	}
	w := e.w
	closed := isGone(e.c) // before the results: then all must be there
	if err := e.c.Err(); err != nil && !e.noted {
		e.noted = true
		w.blames++
		w.countEnd(err)
		w.trace.note(e.p.id, uint64(e.side), uint64(errorClass(err)))
		if !e.closing && e.p.blame == "" {
			w.fail("%v: failed without a reason: %v", e.p, err)
		}
	}
	if e.flushedAt != 0 && e.c.Err() == nil && w.now() > e.flushedAt+2*causeBound {
		w.fail("%v: end %d: operations were flushed, but the connection does not fail", e.p, e.side)
	}
	home := e.home != nil && isClosed(e.home) // likewise
	before := len(e.ops)
	e.ops = e.takeInOrder(e.ops)
	e.takeJoined()
	e.inTime(before)
	e.recvs = e.takeInOrder(e.recvs)
	e.cancelled(home)
	e.takeMessages()
	e.releaseHeld(closed)
	if !closed {
		if e.closing && w.now() > e.closeBy {
			w.fail("%v: closing does not end", e.p)
		}
		return
	}
	if len(e.ops)+len(e.recvs)+len(e.wants) > 0 {
		w.fail("%v: the connection is gone, and operations are not settled", e.p)
	}
	if e.untold() {
		return
	}
	if !e.closing && !e.cutOff {
		w.fail("%v: gone without being closed", e.p)
	}
	e.gone = true
}

// takeInOrder settles what has completed. A queue completes in order.
func (e *simEnd) takeInOrder(ops []*simOp) []*simOp {
	done := 0
	for ; done < len(ops); done++ {
		if !ops[done].poll() {
			break
		}
	}
	if done < len(ops) && !e.cutOff { // what was never posted to a removed device fails at once
		if k := done + e.w.r.IntN(len(ops)-done); ops[k].ready() && !ops[done].ready() {
			e.w.fail("%v: %v completed before %v", e.p, ops[k], ops[done])
		}
	}
	clear(ops[:done])
	return ops[done:]
}

// close ends this end of the connection.
func (e *simEnd) close(hard bool) {
	e.p.excuse("it was closed")
	if hard {
		e.c.Abort()
	} else {
		e.c.end(false)
	}
	e.closing, e.closeBy = true, e.w.now()+simPatience
}

// simCancels is in how many steps of an end it cancels its connection once.
const simCancels = 5000

// cancel has everything come home.
func (e *simEnd) cancel() {
	e.p.excuse("it was cancelled")
	e.home, e.homeBy = e.c.cancel(), e.w.now()+simPatience
	e.w.cancels++
}

// cancelled looks at what a Cancel has achieved that has come to its end, or not.
func (e *simEnd) cancelled(home bool) {
	switch {
	case home && len(e.ops)+len(e.recvs) > 0:
		e.w.fail("%v: end %d is cancelled, and operations are not settled: %v", e.p, e.side, e)
	case home:
		e.home = nil
	case e.home != nil && e.w.now() > e.homeBy:
		e.w.fail("%v: end %d: cancelling does not end", e.p, e.side)
	}
}
