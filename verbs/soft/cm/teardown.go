package cm

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Disconnect asks the peer to end the connection; EvDisconnected and EvTimewaitExit follow. It also
// works on a passive side that still waits for the RTU. On a connection that is ending it does
// nothing.
func (c *Conn) Disconnect(now time.Duration, private []byte) error {
	switch c.state {
	case StateEstablished, StateREPSent, StateMRAREPRcvd:
		return c.dreq(now, private)
	case StateDREQRcvd:
		return c.SendDREP(now, private)
	case StateDREQSent, StateTimewait:
		return nil
	}
	return &StateError{"Disconnect", c.state}
}

func (c *Conn) dreq(now time.Duration, private []byte) error {
	c.dreqTID = uint64(c.local)<<32 | c.m.cfg.Rand()&0xffffffff
	d := &DREQ{TID: c.dreqTID, LocalID: c.local, RemoteID: c.remote, RemoteQPN: c.rqpn}
	if err := setPrivate(AttrDREQ, d.Private[:], private); err != nil {
		return err
	}
	if err := c.transmit(d); err != nil {
		return err
	}
	// At the local pace, not the one that the peer asked for in its REQ: with that a connection
	// closed by its owner could stay for many minutes.
	c.wait, c.maxRetries = codeTime(c.m.cfg.ResponseTimeout), c.m.cfg.MaxRetries
	c.await(now, StateDREQSent)
	return nil
}

// SendDREP answers the peer's DREQ, after EvDisconnected.
func (c *Conn) SendDREP(now time.Duration, private []byte) error {
	if c.state != StateDREQRcvd {
		return &StateError{"SendDREP", c.state}
	}
	d := &DREP{TID: c.dreqTID, LocalID: c.local, RemoteID: c.remote}
	if err := setPrivate(AttrDREP, d.Private[:], private); err != nil {
		return err
	}
	c.enterTimewait(now)
	return c.transmit(d)
}

// Close abandons the connection, in any state. No event follows; the machine informs the peer and
// forgets the connection as soon as possible. Idempotent.
func (c *Conn) Close(now time.Duration) {
	if c.closed {
		return
	}
	c.disown()
	switch c.state {
	case StateREQSent, StateMRAREQRcvd:
		c.sendOnce(c.giveUpREJ())
		c.forget()
	case StateREQRcvd, StateMRAREQSent:
		_ = c.Reject(now, RejConsumer, nil) // the state allows it and there is no private data
	case StateREPRcvd, StateMRAREPSent:
		c.sendOnce(&REJ{TID: c.tid, LocalID: c.local, RemoteID: c.remote, Answers: AnswersREP, Reason: RejConsumer})
		c.forget()
	case StateREPSent, StateMRAREPRcvd, StateEstablished:
		_ = c.dreq(now, nil) // without private data it always fits
	case StateDREQRcvd:
		_ = c.SendDREP(now, nil) // likewise
	case StateSIDRREQSent:
		c.forget() // the peer need not know
	case StateSIDRREQRcvd:
		_ = c.Answer(now, SIDRReject, 0, 0, nil) // the state allows it and there is no private data
	case StateTimewait:
		c.shrink()
	case StateIdle, StateDREQSent, StateREJSent, StateSIDRREPSent:
	}
}

// Drop forgets a request that has just arrived, without an answer, as if it had been lost: its peer repeats it. The
// consumer must not use c again.
func (c *Conn) Drop() {
	c.disown()
	c.forget()
}

// stale ends a connection whose queue pair the peer uses for another one.
func (c *Conn) stale(now time.Duration) {
	if c.state == StateEstablished {
		_ = c.dreq(now, nil) // without private data it always fits
	}
}

func (c *Conn) enterTimewait(now time.Duration) {
	c.answered()
	c.state = StateTimewait
	c.m.timers.set(c, now+c.m.cfg.TimeWait)
	if c.closed {
		c.shrink()
	}
}

// timewait ends an established connection.
func (c *Conn) timewait(now time.Duration, timeout bool) {
	c.enterTimewait(now)
	c.emit(Event{Kind: EvDisconnected, Timeout: timeout})
}

// onDREQ handles the peer's request to end the connection.
func (m *Machine) onDREQ(now time.Duration, src wire.Path, d *DREQ) bool {
	c := m.find(src, d.RemoteID, d.LocalID)
	if c == nil {
		if c = m.byLocal[d.RemoteID]; c != nil && c.onEarlyDREQ(src, d) {
			return true
		}
		// Gone already, or in TIMEWAIT: agree, so that the peer need not wait.
		if m.timewait.hasID(d.RemoteID) {
			m.stats.Repeated++
		}
		m.send(src, &DREP{TID: d.TID, LocalID: d.RemoteID, RemoteID: d.LocalID}, true)
		return true
	}
	if c.lqpn != d.RemoteQPN {
		return false
	}
	switch c.state {
	case StateEstablished, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		c.dreqTID = d.TID
		c.rest(StateDREQRcvd)
		if c.closed {
			_ = c.SendDREP(now, nil) // the state allows it
			return true
		}
		c.emit(Event{Kind: EvDisconnected})
	case StateDREQSent:
		// Both at once. The peer's DREQ answers the local one, which needs no DREP.
		c.agree(d)
		c.timewait(now, false)
	case StateTimewait:
		c.m.stats.Repeated++
		c.agree(d)
	default:
		return false
	}
	return true
}

// onEarlyDREQ handles a DREQ that overtook the REP, or whose REP was lost: the peer accepted and
// has closed since. If the connection continued to wait, the late REP would establish it with a
// peer that is gone.
func (c *Conn) onEarlyDREQ(src wire.Path, d *DREQ) bool {
	if c.state != StateREQSent && c.state != StateMRAREQRcvd || c.peer != src || c.lqpn != d.RemoteQPN {
		return false
	}
	c.remote = d.LocalID
	c.agree(d)
	c.forget()
	// The peer had accepted and gave up: not what its consumer refused, which would be no reason to ask again.
	c.emit(Event{Kind: EvRejected, REJ: &REJ{LocalID: d.LocalID, RemoteID: c.local, Answers: AnswersREQ, Reason: RejTimeout}})
	return true
}

func (c *Conn) agree(d *DREQ) {
	c.sendOnce(&DREP{TID: d.TID, LocalID: c.local, RemoteID: c.remote})
}

// onDREP handles the peer's agreement to the end.
func (m *Machine) onDREP(now time.Duration, src wire.Path, d *DREP) bool {
	c := m.find(src, d.RemoteID, d.LocalID)
	if c == nil || c.state != StateDREQSent || d.TID != c.dreqTID {
		return false
	}
	c.timewait(now, false)
	return true
}

// onREJ handles a refusal, or the end of an attempt.
func (m *Machine) onREJ(now time.Duration, src wire.Path, rej *REJ) bool {
	c := m.byLocal[rej.RemoteID]
	if rej.RemoteID == 0 {
		// The peer gave up before the answer arrived: found by the peer's ID.
		c = m.byRemote[remoteID{src, rej.LocalID}]
	}
	if c == nil || c.peer != src || rej.TID != c.tid {
		return false
	}
	switch c.state {
	case StateREQSent, StateMRAREQRcvd: // any connection there: the peer's ID is not known yet
	case StateREQRcvd, StateMRAREQSent, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		if c.remote != rej.LocalID {
			return false
		}
	case StateEstablished, StateDREQSent:
		// Only from the connection itself: the refusal of an earlier copy of the REQ may be late.
		if c.remote != rej.LocalID || rej.RemoteID == 0 {
			return false
		}
		c.timewait(now, false)
		return true
	default:
		return false
	}
	c.forget()
	c.emit(Event{Kind: EvRejected, REJ: rej})
	return true
}
