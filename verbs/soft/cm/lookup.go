package cm

import (
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Service resolution (IBTA 12.11): one query, one answer, no connection.
//
//	    active                            passive
//
//	     IDLE                             LISTEN (a Listener)
//	      │ Lookup: SIDR_REQ →              │ → SIDR_REQ
//	      v                                 v
//	SIDR_REQ_SENT ── no answer:        SIDR_REQ_RCVD ── → SIDR_REQ again: nothing
//	      │          SIDR_REQ →             │ Answer: SIDR_REP →
//	      │ → SIDR_REP, or given up         v
//	      v                            SIDR_REP_SENT ── → SIDR_REQ again: SIDR_REP →
//	    gone                                │ when no repetition can come
//	                                        v
//	                                      gone
//
// A query is a [Conn] too; methods for connections return ErrState on it. The kernel forgets a
// query when it has answered, so that a repeated one reaches the listener as a new one; this
// machine remembers it as long as repetitions may come.

// lateRepetitions is how much longer an answered query is remembered than this machine repeats its own queries. A
// query does not contain its sender's retry settings, and its repetitions may wait in the socket of a process that
// gets no processor: forgotten too early, one would reach the listener as a second query.
const lateRepetitions = 4

// LookupParam is the parameters of Lookup.
type LookupParam struct {
	Dst       wire.Path
	ServiceID uint64
	PKey      uint16
	Private   []byte // at most PrivateSIDRREQ bytes
}

// Lookup sends a SIDR_REQ. The outcome is EvSIDRReply or EvUnreachable. The error is a *FieldError
// when a value does not fit; nothing was sent then.
//
// Implements: ib_send_cm_sidr_req (kernel cm.c).
func (m *Machine) Lookup(now time.Duration, p *LookupParam, user any) (*Conn, error) {
	id := m.newID()
	req := &SIDRREQ{TID: uint64(id)<<32 | m.cfg.Rand()&0xffffffff, RequestID: id, PKey: p.PKey, ServiceID: p.ServiceID}
	if err := setPrivate(AttrSIDRREQ, req.Private[:], p.Private); err != nil {
		return nil, err
	}
	c := &Conn{
		User: user, m: m, local: id, peer: p.Dst, tid: req.TID, service: p.ServiceID,
		wait: codeTime(m.cfg.ResponseTimeout), maxRetries: m.cfg.MaxRetries,
	}
	m.byLocal[id] = c
	if err := c.transmit(req); err != nil {
		return nil, err
	}
	c.await(now, StateSIDRREQSent)
	return c, nil
}

// onSIDRREQ handles a query or its repetition.
func (m *Machine) onSIDRREQ(now time.Duration, src wire.Path, req *SIDRREQ) bool {
	if c := m.bySIDR[remoteID{src, req.RequestID}]; c != nil {
		c.asked()
		if c.state != StateSIDRREPSent || c.tid != req.TID {
			return false // the consumer has not answered
		}
		c.repeat()
		return true
	}
	l := m.listener(&src, req.ServiceID, req.Private[:])
	if l == nil || l.pending >= l.backlog {
		why := SIDRUnsupported
		if l != nil {
			why = SIDRNoQP // the backlog is full
			if !m.inside(&src) {
				return true // as for a REQ
			}
		}
		m.send(src, &SIDRREP{TID: req.TID, RequestID: req.RequestID, Status: why, ServiceID: req.ServiceID}, true)
		return true
	}
	c := &Conn{
		m: m, listener: l, passive: true, state: StateSIDRREQRcvd, local: m.newID(), remote: req.RequestID,
		peer: src, tid: req.TID, service: req.ServiceID,
	}
	c.asked()
	l.pending++
	m.byLocal[c.local] = c
	m.bySIDR[remoteID{src, c.remote}] = c
	c.emit(Event{Kind: EvSIDRRequest, Listener: l, SIDRREQ: req})
	return true
}

// Answer answers a query, with a queue pair and its key if status is SIDRSuccess. No event follows;
// the query belongs to the machine from now on.
//
// Implements: ib_send_cm_sidr_rep (kernel cm.c).
func (c *Conn) Answer(now time.Duration, status SIDRStatus, qpn, qkey uint32, private []byte) error {
	if c.state != StateSIDRREQRcvd {
		return &StateError{"Answer", c.state}
	}
	rep := &SIDRREP{TID: c.tid, RequestID: c.remote, Status: status, ServiceID: c.service}
	if status == SIDRSuccess {
		rep.QPN, rep.QKey = qpn, qkey
	}
	if err := setPrivate(AttrSIDRREP, rep.Private[:], private); err != nil {
		return err
	}
	if err := c.transmit(rep); err != nil {
		return err
	}
	c.remember(now+min(rejKeep, lateRepetitions*codeTime(c.m.cfg.ResponseTimeout)*time.Duration(c.m.cfg.MaxRetries+1)), StateSIDRREPSent)
	return nil
}

// onSIDRREP handles the answer to a local query.
func (m *Machine) onSIDRREP(src wire.Path, rep *SIDRREP) bool {
	c := m.byLocal[rep.RequestID]
	if c == nil || c.state != StateSIDRREQSent || c.peer != src || c.tid != rep.TID {
		return false
	}
	c.forget()
	c.emit(Event{Kind: EvSIDRReply, SIDRREP: rep})
	return true
}
