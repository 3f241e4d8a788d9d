package runtime

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
)

// simPair is one connection, from dialing until both ends are gone.
type simPair struct {
	w       *simWorld
	id      uint64
	raw     bool
	nodes   [2]*simNode  // nodes[0] dials, nodes[1] accepts
	ends    [2]*simEnd   // ends[i] is at nodes[i]; nil before it is established
	areas   [2]*simArea  // areas[i] is at nodes[i]; the end at the other node accesses it
	streams [2]simStream // streams[i] has the messages that ends[i] sends
	dial    futures.Future[*Conn]
	dialing bool
	holdTo  time.Duration // the pair is not retired before this virtual time (see simHold)
	blame   string        // the reason why the connection may fail; "": it must not fail
}

// simStream is the model of the messages in one direction of a connection. Messages must arrive in the
// order in which they were accepted.
type simStream struct {
	sent     []simMsg // not received yet, oldest first
	received int      // how many messages were received
	accepted int      // how many messages were accepted
	okUpTo   int      // the sends of the first okUpTo messages have succeeded: these messages are at the peer's device
}

type simMsg struct {
	seed uint64
	n    int
	imm  uint32
	with bool // the message is a WRITE with immediate data
	// shuts is the receiver's window that the message invalidates; nil: none.
	shuts *simWindow
}

func (s *simStream) push(m simMsg) {
	s.sent = append(s.sent, m)
	s.accepted++
}

// unpush removes the last message, which was not accepted.
func (s *simStream) unpush() {
	s.sent = s.sent[:len(s.sent)-1]
	s.accepted--
}

func (s *simStream) pop() (m simMsg, ok bool) {
	if len(s.sent) == 0 {
		return m, false
	}
	m = s.sent[0]
	s.sent = s.sent[1:]
	s.received++
	return m, true
}

// reconnect opens closed listeners. If there are fewer than simPairs connections, it sometimes dials a
// new connection.
func (w *simWorld) reconnect() {
	for _, n := range w.nodes {
		if n.up() {
			n.listen()
		}
	}
	if len(w.pairs) >= simPairs || w.r.one(3) {
		return
	}
	i := w.r.IntN(simNodes)
	from, to := w.nodes[i], w.nodes[(i+w.r.between(1, simNodes-1))%simNodes]
	k := simManaged
	if w.r.one(2) {
		k = w.r.between(simRaw, simSharing)
	}
	raw := k != simManaged
	if !from.up() || !to.up() {
		return
	}
	p := &simPair{w: w, raw: raw, nodes: [2]*simNode{from, to}, dialing: true}
	for i, n := range p.nodes {
		if p.areas[i] = n.area(); p.areas[i] == nil {
			if i == 1 {
				p.areas[0].retire()
			}
			return // no area is free: connections that end slowly still use them
		}
	}
	w.nextPair++
	p.id = w.nextPair
	o := Options{
		Raw: raw, SendDepth: w.r.between(3, 48), RecvCredits: w.credits(raw), MessageSize: simMsgSize, Windows: true,
		PeerTimeout: simPeerTimeout, KeepAlive: w.simAsks(), Inline: w.r.between(16, 200), PrivateData: binary.LittleEndian.AppendUint64(nil, p.id),
	}
	var err error
	if p.dial, err = from.rt.DialAsync(w.ended, to.ln[k].Addr().String(), o); err != nil {
		w.fail("dialing: %v", err)
	}
	switch {
	case w.heavy:
		p.blame = "heavy loss"
	case w.cut >= 0 && (from.i == w.cut || to.i == w.cut):
		p.blame = "partition"
	case w.oneWay.meets(p):
		p.blame = "cut in one direction"
	case from.portAt != 0 || to.portAt != 0:
		p.blame = "a port was down"
	}
	w.pairs = append(w.pairs, p)
	if w.r.one(25) {
		p.dial.Discard() // if the connection is established after all, the runtime closes it
		p.dialing, p.blame, p.holdTo = false, "the dial was given up", w.now()+simHold
	}
}

// credits() returns Options.RecvCredits of a connection. A managed connection shares receives with others
// if the number is 0.
func (w *simWorld) credits(raw bool) int {
	if !raw && w.r.one(2) {
		return 0
	}
	return w.r.between(1, 20)
}

// accepted() finds the pair of an accepted connection by the id in the connection's private data. If
// there is no such pair, it aborts the connection.
func (w *simWorld) accepted(n *simNode, c *Conn) {
	if data := c.PrivateData(); len(data) == 8 {
		id := binary.LittleEndian.Uint64(data)
		for _, p := range w.pairs {
			if p.id == id && p.nodes[1] == n && p.ends[1] == nil {
				p.meet(1, c)
				return
			}
		}
	}
	c.Abort()
	w.orphans = append(w.orphans, c)
}

func (p *simPair) meet(side int, c *Conn) {
	p.ends[side] = &simEnd{p: p, w: p.w, side: side, n: p.nodes[side], c: c, to: p.areas[1-side]}
	if p.ends[0] != nil && p.ends[1] != nil {
		p.w.opened++
	}
}

// simHold is how long a pair is kept after its dial was given up, or after its dialing end is gone and
// no accepted end is known. In this time the listener may still report the accepted end, and packets may
// reach that end.
const simHold = 10 * time.Second

// collect() takes results. If the pair has ended, it retires the pair and returns true.
func (p *simPair) collect() bool {
	w := p.w
	if p.dialing {
		if c, err, ok := p.dial.Poll(); ok {
			p.dialing = false
			w.trace.note(p.id, uint64(errorClass(err)))
			if err == nil {
				p.meet(0, c)
			} else if p.blame == "" {
				w.fail("%v: the dial failed without a reason: %v", p, err)
			} else {
				w.blames++
			}
		}
	}
	done := !p.dialing && w.now() >= p.holdTo
	for _, e := range p.ends {
		if e != nil {
			e.collect()
			done = done && e.gone
		}
	}
	if done && p.ends[0] != nil && p.ends[1] == nil && p.holdTo == 0 {
		p.holdTo, done = w.now()+simHold, false
	}
	if done {
		p.retire()
	}
	return done
}

func (p *simPair) retire() {
	for i, a := range p.areas {
		a.retire()
		e := p.ends[1-i] // the receiver of end i's messages
		if s := &p.streams[i]; e != nil && e.sawEnd && !e.cutOff && s.received < s.okUpTo {
			p.w.fail("%v: %d messages of end %d were sent with success, but the other end received only %d before its Recv failed", p, s.okUpTo, i, s.received)
		}
	}
}

// excuse() permits the connection to fail from now on.
func (p *simPair) excuse(why string) {
	if p.blame == "" {
		p.blame = why
	}
}

// finish() closes the open ends.
func (p *simPair) finish() {
	p.excuse("the end of the run")
	for _, e := range p.ends {
		if e != nil && !e.closing {
			e.close(p.w.r.one(2))
		}
	}
}

func (p *simPair) String() string {
	s := fmt.Sprintf("connection %d %s-%s raw %t dialing %t excuse %q", p.id, p.nodes[0].name, p.nodes[1].name, p.raw, p.dialing, p.blame)
	for _, e := range p.ends {
		if e != nil {
			s += fmt.Sprintf("\n    %v", e)
		}
	}
	return s
}

// simEnd is one end of a connection and its operations.
type simEnd struct {
	p    *simPair
	w    *simWorld
	side int
	n    *simNode
	c    *Conn
	to   *simArea // the peer's memory

	ops     []*simOp // sends, in the order in which they were accepted
	lastOK  uint64   // the id of the last operation that succeeded
	joined  []*simJoined
	overdue bool     // untold() has returned true
	recvs   []*simOp // receives of a raw connection, in the order in which they were accepted
	wants   []futures.Future[Message]
	windows []*simWindow
	held    []simHeld

	home    chan struct{} // the channel that Conn.cancel has returned; nil: no Cancel is in progress
	homeBy  time.Duration // the virtual time by which home must be closed
	closing bool          // Close or Abort was called here
	closeBy time.Duration // the virtual time by which the connection must be closed
	sawEnd  bool          // Recv has returned the cause, after all messages
	noted   bool          // the failure was counted
	gone    bool          // the connection is closed, and all its results were taken
	cutOff  bool          // the device of this end was removed; messages that had arrived there are lost

	lastCame uint64      // the id of the last operation whose sink was called
	turn     SinkContext // the SinkContext of the last call of a sink
	near     bool        // local() takes most memory from the region scratch
	inside   bool        // a sink is running

	movedAt time.Duration // the last virtual time at which a send ended or no send was outstanding
	shunned bool          // the peer is mute; the bound for sends is simMuteBound
	muteTo  time.Duration // this end posts no receives until this virtual time

	killed    bool          // the test has moved the queue pair of this end to ERR
	flushedAt time.Duration // the virtual time of a flush before the connection had a cause; 0: no such flush
}

func (e *simEnd) String() string {
	return fmt.Sprintf("end %d: state %d, cause %v, %d sends, %d receives, %d wants, %d held, closing %t, saw the end %t, gone %t",
		e.side, e.c.state, e.c.Err(), len(e.ops), len(e.recvs), len(e.wants), len(e.held), e.closing, e.sawEnd, e.gone)
}

// e.in() is the stream of messages to this end; e.out() is the stream of messages from this end.
func (e *simEnd) in() *simStream  { return &e.p.streams[1-e.side] }
func (e *simEnd) out() *simStream { return &e.p.streams[e.side] }

// act() starts some operations. Sometimes it closes, aborts or cancels the connection.
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
	if e.closing && r.one(20) { // ends the wait of Close for outstanding operations
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

// collect() takes results and messages, and checks how the connection ends.
func (e *simEnd) collect() {
	if e.gone {
		return
	}
	w := e.w
	// Call isGone before the results are taken. If the connection is closed, it has delivered all its
	// results, and the code below takes all of them.
	closed := isGone(e.c)
	if err := e.c.Err(); err != nil && !e.noted {
		e.noted = true
		w.blames++
		w.countEnd(err)
		w.trace.note(e.p.id, uint64(e.side), uint64(errorClass(err)))
		if !e.closing && e.p.blame == "" {
			w.fail("%v: the connection failed without a reason: %v", e.p, err)
		}
	}
	if e.flushedAt != 0 && e.c.Err() == nil && w.now() > e.flushedAt+2*causeBound {
		w.fail("%v: end %d: operations were flushed, but the connection has not failed in time", e.p, e.side)
	}
	// Call isClosed before the results are taken. If the Cancel has ended, all operations are settled,
	// and takeInOrder takes all of them.
	cancelEnded := e.home != nil && isClosed(e.home)
	before := len(e.ops)
	e.ops = e.takeInOrder(e.ops)
	e.takeJoined()
	e.inTime(before)
	e.recvs = e.takeInOrder(e.recvs)
	e.cancelled(cancelEnded)
	e.takeMessages()
	e.releaseHeld(closed)
	if !closed {
		if e.closing && w.now() > e.closeBy {
			w.fail("%v: end %d is not closed %v after Close or Abort", e.p, e.side, simPatience)
		}
		return
	}
	if len(e.ops)+len(e.recvs)+len(e.wants) > 0 {
		w.fail("%v: end %d is closed, but some of its operations are not settled", e.p, e.side)
	}
	if e.untold() {
		return
	}
	if !e.closing && !e.cutOff {
		w.fail("%v: end %d is closed, but neither Close nor Abort was called", e.p, e.side)
	}
	e.gone = true
}

// takeInOrder settles the completed operations at the front of ops, and returns the rest. Operations
// of a queue complete in order. So if the first operation of the rest is outstanding, all operations
// of the rest must be outstanding. takeInOrder checks one of them, chosen at random.
func (e *simEnd) takeInOrder(ops []*simOp) []*simOp {
	done := 0
	for ; done < len(ops); done++ {
		if !ops[done].poll() {
			break
		}
	}
	if done < len(ops) && !e.cutOff { // when a device is removed, its unposted requests fail at once
		if k := done + e.w.r.IntN(len(ops)-done); ops[k].ready() && !ops[done].ready() {
			e.w.fail("%v: %v completed before %v, which was started earlier", e.p, ops[k], ops[done])
		}
	}
	clear(ops[:done])
	return ops[done:]
}

// close() closes this end of the connection. If hard is true, it aborts the connection.
func (e *simEnd) close(hard bool) {
	e.p.excuse("it was closed")
	if hard {
		e.c.Abort()
	} else {
		e.c.end(false)
	}
	e.closing, e.closeBy = true, e.w.now()+simPatience
}

// simCancels is the average number of calls of act between two Cancels of an end.
const simCancels = 5000

// cancel() cancels all operations of the end.
func (e *simEnd) cancel() {
	e.p.excuse("it was cancelled")
	e.home, e.homeBy = e.c.cancel(), e.w.now()+simPatience
	e.w.cancels++
}

// cancelled() checks a Cancel. The argument is true if the Cancel has ended. Then all operations must be
// settled. Otherwise the Cancel must end by e.homeBy.
func (e *simEnd) cancelled(ended bool) {
	switch {
	case ended && len(e.ops)+len(e.recvs) > 0:
		e.w.fail("%v: the Cancel of end %d has ended, but some operations are not settled: %v", e.p, e.side, e)
	case ended:
		e.home = nil
	case e.home != nil && e.w.now() > e.homeBy:
		e.w.fail("%v: the Cancel of end %d has not ended within %v", e.p, e.side, simPatience)
	}
}
