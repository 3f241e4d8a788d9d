package cm

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// State is the state of a connection; the package documentation draws the transitions.
type State uint8

// Values of State (IBTA 12.9.5; kernel include/rdma/ib_cm.h enum ib_cm_state). StateREJSent is this
// package's: a refused request that is remembered for a while.
const (
	StateIdle State = iota // ended, or not begun
	StateREQSent
	StateREQRcvd
	StateMRAREQSent
	StateMRAREQRcvd
	StateREPSent
	StateREPRcvd
	StateMRAREPSent
	StateMRAREPRcvd
	StateEstablished
	StateDREQSent
	StateDREQRcvd
	StateTimewait
	StateREJSent
	StateSIDRREQSent
	StateSIDRREQRcvd
	StateSIDRREPSent // like REJ_SENT: a query that is remembered for a while
)

var stateNames = [...]string{
	"IDLE", "REQ_SENT", "REQ_RCVD", "MRA_REQ_SENT", "MRA_REQ_RCVD", "REP_SENT", "REP_RCVD",
	"MRA_REP_SENT", "MRA_REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "REJ_SENT",
	"SIDR_REQ_SENT", "SIDR_REQ_RCVD", "SIDR_REP_SENT",
}

// String returns the name of the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Errors of the methods.
var (
	// ErrState reports a call that the connection's state does not allow.
	ErrState = errors.New("cm: not in this state")
	// ErrInUse reports a service that already has a listener.
	ErrInUse = errors.New("cm: service in use")
)

// StateError describes a call that the state does not allow; it matches ErrState.
type StateError struct {
	Op    string
	State State
}

// Error names the call and the state.
func (e *StateError) Error() string { return fmt.Sprintf("%v: %s in %v", ErrState, e.Op, e.State) }

// Is matches ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// Conn is a connection, or the attempt of one. The same serialization as for the Machine applies to
// its methods.
type Conn struct {
	// User is the consumer's; the machine does not use it. It is nil after the connection is
	// closed, so that a closing connection keeps no reference to its owner.
	User any

	m        *Machine
	listener *Listener // while the request is unanswered
	state    State
	passive  bool
	xrc      bool // active: the queue pair is of type XRC_SEND
	closed   bool // by the owner: no more events
	local    uint32
	remote   uint32 // the peer's ID; 0 while unknown
	peer     wire.Path
	lqpn     uint32
	rqpn     uint32 // 0 while unknown
	tid      uint64 // of the REQ or the query, and of all messages up to the RTU
	dreqTID  uint64 // of the DREQ, this side's or the peer's, and of the DREP
	service  uint64 // of a query
	req      *REQ   // passive, until it is answered

	// proven is set once a datagram names the random ID of this side, or data its queue pair: then the
	// peer's address is not forged. allowance is how many datagrams may be sent there before; see send.
	proven    bool
	allowance uint8

	wait       time.Duration // the time limit of an answer
	maxRetries uint8
	retries    uint8
	last       MAD // the message repeated in this state

	deadline time.Duration
	timerSeq uint64
	timer    int // index in the heap + 1; 0: no deadline
}

// State returns the state of the connection.
func (c *Conn) State() State { return c.state }

// Peer returns the address of the other port.
func (c *Conn) Peer() wire.Path { return c.peer }

// LocalID returns the communication ID of this side.
func (c *Conn) LocalID() uint32 { return c.local }

// String names the connection by its IDs and state.
func (c *Conn) String() string {
	return fmt.Sprintf("cm conn %08x-%08x with %v in %v", c.local, c.remote, c.peer, c.state)
}

// transmit encodes msg as the message repeated in this state, and sends it.
func (c *Conn) transmit(msg Message) error {
	if err := msg.Put(&c.last); err != nil {
		return err
	}
	c.send()
	return nil
}

// repeat sends the last message again.
func (c *Conn) repeat() {
	if c.send() {
		c.m.stats.Repeated++
	}
}

// amplification bounds what is sent to an address that is not proven: so many times what came from there
// (all datagrams have the same length). Otherwise who forges the address of another machine has this one
// send much more there than he sends himself.
//
// Implements: the limit of RFC 9000, 8.
const amplification = 3

// asked notes a request from an address that is not proven.
func (c *Conn) asked() { c.allowance = min(c.allowance, math.MaxUint8-amplification) + amplification }

// allowed reports whether one more datagram may be sent to the peer.
func (c *Conn) allowed() bool {
	switch {
	case !c.stranger() || !c.peer.Far():
		return true
	case c.allowance == 0:
		c.m.stats.Withheld++
		return false
	}
	c.allowance--
	return true
}

// stranger reports whether the peer's address is not proven. The active side's is the choice of its owner.
func (c *Conn) stranger() bool { return c.passive && !c.proven }

// sendOnce sends a message that is not repeated.
func (c *Conn) sendOnce(msg Message) { c.m.send(c.peer, msg, c.stranger()) }

// send sends the last message, if that is allowed.
func (c *Conn) send() bool {
	if !c.allowed() {
		return false
	}
	c.m.stats.Sent++
	c.m.cfg.Send(c.peer, &c.last, c.stranger())
	return true
}

func (c *Conn) sendMRA(answers Answered) {
	if c.allowed() {
		c.sendOnce(&MRA{
			TID: c.tid, LocalID: c.local, RemoteID: c.remote,
			Answers: answers, ServiceTimeout: c.m.cfg.ServiceTimeout,
		})
	}
}

// await enters a state in which the last message is repeated until answered.
func (c *Conn) await(now time.Duration, s State) {
	c.state, c.retries = s, 0
	c.m.timers.set(c, now+c.wait)
}

// rest enters a state without a deadline.
func (c *Conn) rest(s State) {
	c.state = s
	c.m.timers.stop(c)
}

// emit reports an event to the owner, unless the connection is closed. A handler calls it last,
// because the owner may call back.
func (c *Conn) emit(e Event) {
	if c.closed {
		return
	}
	e.Conn = c
	c.m.cfg.Event(e)
}

// remember enters a state that only answers repetitions, until a deadline, or forgets the
// connection if enough are remembered.
func (c *Conn) remember(until time.Duration, s State) {
	c.disown()
	c.answered()
	if c.m.kept >= maxRemembered {
		c.forget()
		return
	}
	c.forgetQPN()
	c.m.kept++
	c.state = s
	c.m.timers.set(c, until)
}

// disown marks the connection as closed by its owner.
func (c *Conn) disown() { c.closed, c.User = true, nil }

// forget removes the connection from the machine.
func (c *Conn) forget() {
	if c.state == StateREJSent || c.state == StateSIDRREPSent {
		c.m.kept--
	}
	c.rest(StateIdle)
	c.answered()
	delete(c.m.byLocal, c.local)
	c.m.heard(c)
	if k := (remoteID{c.peer, c.remote}); c.m.byRemote[k] == c {
		delete(c.m.byRemote, k)
	}
	if k := (remoteID{c.peer, c.remote}); c.m.bySIDR[k] == c {
		delete(c.m.bySIDR, k)
	}
	c.forgetQPN()
}

func (c *Conn) forgetQPN() {
	if k := (remoteQP{c.peer, c.rqpn}); c.m.byQPN[k] == c {
		delete(c.m.byQPN, k)
	}
}

// answered frees the connection's place in the listener's backlog.
func (c *Conn) answered() {
	if c.listener != nil {
		c.listener.pending--
		c.listener = nil
	}
	c.req = nil
}

// expired handles a deadline.
func (c *Conn) expired(now time.Duration) {
	switch c.state {
	case StateREQRcvd:
		if !c.proven && c.peer.Far() { // its REPs are worth more; if it repeats the REQ it gets an MRA
			c.m.timers.stop(c)
			return
		}
		c.sendMRA(AnswersREQ)
		c.rest(StateMRAREQSent)
	case StateREPRcvd:
		c.sendMRA(AnswersREP)
		c.rest(StateMRAREPSent)
	case StateEstablished: // see SendRTU
		c.repeat()
	case StateTimewait:
		c.forget()
		c.emit(Event{Kind: EvTimewaitExit})
	case StateREJSent, StateSIDRREPSent:
		c.forget()
	case StateREQSent, StateMRAREQRcvd, StateREPSent, StateMRAREPRcvd, StateDREQSent, StateSIDRREQSent:
		if c.retries < c.maxRetries {
			c.retransmit(now)
			return
		}
		c.retriesExceeded(now)
	}
}

// retransmit repeats the last message and waits as long as the first time. An MRA was for the earlier
// copy, so the state returns to that of having sent.
func (c *Conn) retransmit(now time.Duration) {
	switch c.state {
	case StateMRAREQRcvd:
		c.state = StateREQSent
	case StateMRAREPRcvd:
		c.state = StateREPSent
	}
	c.retries++
	c.repeat()
	c.m.timers.set(c, now+c.wait)
}

func (c *Conn) retriesExceeded(now time.Duration) {
	switch c.state {
	case StateDREQSent:
		c.timewait(now, true)
	case StateSIDRREQSent:
		c.forget()
		c.emit(Event{Kind: EvUnreachable})
	case StateREQSent, StateMRAREQRcvd:
		// The peer's consumer may have the request.
		c.sendOnce(c.giveUpREJ())
		c.forget()
		c.emit(Event{Kind: EvUnreachable})
	default: // REP_SENT
		// The peer may be established: take the connection down, which is over for the local
		// consumer.
		e := Event{Kind: EvUnreachable, Conn: c}
		tell := !c.closed
		c.closed = true
		_ = c.dreq(now, nil) // without private data it always fits
		if tell {
			c.m.cfg.Event(e)
		}
		c.disown() // it had its last event
	}
}

// giveUpREJ returns a REJ that ends an abandoned request. The peer finds the request by this side's
// ID, as the kernel's cm_acquire_rejected_id does.
func (c *Conn) giveUpREJ() *REJ {
	rej := &REJ{TID: c.tid, LocalID: c.local, Answers: AnswersREQ, Reason: RejTimeout}
	var guid MAD
	put64(&guid, 0, c.m.cfg.GUID)
	rej.ARILen = uint8(copy(rej.ARI[:8], guid[:]))
	return rej
}
