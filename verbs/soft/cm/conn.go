package cm

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// State is where a connection stands; the package documentation draws them.
type State uint8

// The states (IBTA 12.9.5; kernel include/rdma/ib_cm.h enum ib_cm_state).
// StateREJSent is ours: a refused request that is remembered for a while.
const (
	StateIdle State = iota // gone, or not begun
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
	StateSIDRREPSent // as REJ_SENT: a question that is remembered for a while
)

var stateNames = [...]string{
	"IDLE", "REQ_SENT", "REQ_RCVD", "MRA_REQ_SENT", "MRA_REQ_RCVD", "REP_SENT", "REP_RCVD",
	"MRA_REP_SENT", "MRA_REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "REJ_SENT",
	"SIDR_REQ_SENT", "SIDR_REQ_RCVD", "SIDR_REP_SENT",
}

// String is the name of the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Errors of the calls.
var (
	// ErrState is a call that the connection's state does not allow.
	ErrState = errors.New("cm: not in this state")
	// ErrInUse is a service that is listened on already.
	ErrInUse = errors.New("cm: service in use")
)

// StateError is a call that the state does not allow; errors.Is ErrState.
type StateError struct {
	Op    string
	State State
}

// Error names the call and the state.
func (e *StateError) Error() string { return fmt.Sprintf("%v: %s in %v", ErrState, e.Op, e.State) }

// Is matches ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// Conn is a connection, or the attempt of one. Its methods belong to whoever
// may call the machine.
type Conn struct {
	// User is the consumer's own; the machine does not look at it. It is nil when
	// the connection is closed: what winds down keeps nothing of its owner.
	User any

	m        *Machine
	listener *Listener // while the request is unanswered
	state    State
	passive  bool
	closed   bool // the owner is gone: no more events
	local    uint32
	remote   uint32 // the peer's ID; 0 while unknown
	peer     verbs.GID
	lqpn     uint32
	rqpn     uint32 // 0 while unknown
	tid      uint64
	service  uint64 // of a question
	req      *REQ   // passive, until it is answered

	wait       time.Duration // how long an answer may take
	maxRetries uint8
	retries    uint8
	last       MAD // what is repeated in this state

	deadline time.Duration
	timerSeq uint64
	timer    int // place in the heap + 1; 0: no deadline
}

// State is where the connection stands.
func (c *Conn) State() State { return c.state }

// Peer is the address of the other port.
func (c *Conn) Peer() verbs.GID { return c.peer }

// LocalID is the communication ID of this side.
func (c *Conn) LocalID() uint32 { return c.local }

// String names the connection by its IDs and state.
func (c *Conn) String() string {
	return fmt.Sprintf("cm conn %08x-%08x with %v in %v", c.local, c.remote, c.peer, c.state)
}

// transmit encodes msg as what is repeated in this state, and sends it.
func (c *Conn) transmit(msg Message) error {
	if err := msg.Put(&c.last); err != nil {
		return err
	}
	c.m.stats.Sent++
	c.m.cfg.Send(c.peer, &c.last)
	return nil
}

// repeat sends the last message once more.
func (c *Conn) repeat() {
	c.m.stats.Sent++
	c.m.stats.Repeated++
	c.m.cfg.Send(c.peer, &c.last)
}

func (c *Conn) sendMRA(answers Answered) {
	c.m.send(c.peer, &MRA{
		TID: c.tid, LocalID: c.local, RemoteID: c.remote,
		Answers: answers, ServiceTimeout: c.m.cfg.ServiceTimeout,
	})
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

// emit reports to the owner, if there is one. It is the last thing a handler
// does: the owner may call back.
func (c *Conn) emit(e Event) {
	if c.closed {
		return
	}
	e.Conn = c
	c.m.cfg.Event(e)
}

// remember enters a state in which only repetitions are answered, for a while,
// or forgets the connection if enough are remembered.
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

// disown notes that the owner is gone.
func (c *Conn) disown() { c.closed, c.User = true, nil }

// forget removes the connection from the machine.
func (c *Conn) forget() {
	if c.state == StateREJSent || c.state == StateSIDRREPSent {
		c.m.kept--
	}
	c.rest(StateIdle)
	c.answered()
	delete(c.m.byLocal, c.local)
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

// answered gives the listener its place back.
func (c *Conn) answered() {
	if c.listener != nil {
		c.listener.pending--
		c.listener = nil
	}
	c.req = nil
}

// expired is called when the deadline is reached.
func (c *Conn) expired(now time.Duration) {
	switch c.state {
	case StateREQRcvd:
		c.sendMRA(AnswersREQ)
		c.rest(StateMRAREQSent)
	case StateREPRcvd:
		c.sendMRA(AnswersREP)
		c.rest(StateMRAREPSent)
	case StateTimewait:
		c.forget()
		c.emit(Event{Kind: EvTimewaitExit})
	case StateREJSent, StateSIDRREPSent:
		c.forget()
	case StateREQSent, StateMRAREQRcvd, StateREPSent, StateMRAREPRcvd, StateDREQSent, StateSIDRREQSent:
		if c.retries < c.maxRetries {
			c.again(now)
			return
		}
		c.gaveUp(now)
	}
}

// again repeats the last message and waits as long as the first time. An MRA
// was for what was sent before: the state is again that of having sent.
func (c *Conn) again(now time.Duration) {
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

func (c *Conn) gaveUp(now time.Duration) {
	switch c.state {
	case StateDREQSent:
		c.timewait(now, true)
	case StateSIDRREQSent:
		c.forget()
		c.emit(Event{Kind: EvUnreachable})
	case StateREQSent, StateMRAREQRcvd:
		// The peer may have a request of ours at its consumer.
		c.m.send(c.peer, c.giveUpREJ())
		c.forget()
		c.emit(Event{Kind: EvUnreachable})
	default: // REP_SENT
		// The peer may be established: take it down, for our consumer it
		// is over.
		e := Event{Kind: EvUnreachable, Conn: c}
		tell := !c.closed
		c.closed = true
		_ = c.dreq(now, nil) // without private data it cannot be too long
		if tell {
			c.m.cfg.Event(e)
		}
		c.disown() // it had its last event
	}
}

// giveUpREJ ends a request whose answer nobody waits for any more. The peer
// finds it by our ID, as the kernel's cm_acquire_rejected_id does.
func (c *Conn) giveUpREJ() *REJ {
	rej := &REJ{TID: c.tid, LocalID: c.local, Answers: AnswersREQ, Reason: RejTimeout}
	var guid MAD
	put64(&guid, 0, c.m.cfg.GUID)
	rej.ARILen = uint8(copy(rej.ARI[:8], guid[:]))
	return rej
}
