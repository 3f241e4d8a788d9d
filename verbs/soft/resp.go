package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// message is the kind of the message being received.
type message uint8

const (
	noMessage message = iota
	sendMessage
	writeMessage
)

// responder is the receiving half of a queue pair.
//
//	                 packet with PSN = expected: execute, expected++
//	                ┌──────┐
//	                v      │   PSN > expected: NAK, once       expected arrives
//	in sequence ────┴──────┘ ─────────────────────> waiting ───────────────> in sequence
//	    │                     no receive: RNR NAK      (drops packets out of sequence)
//	    │ refused
//	    v
//	refused: earlier answers, then the NAK, then the queue pair is in ERR
//
// A PSN below expected is a duplicate: acknowledged or answered again, never executed. A NAK to one changes nothing here.
//
// Answers leave in the order of their requests: out holds READ responses and atomic answers;
// acknowledgements and NAKs follow them.
//
// Implements: IBTA volume 1, 9.7 (reliable service), the responder's side. The classes of errors
// are those of rdma_rxe (Linux, rxe_resp.c).
type responder struct {
	expected uint64 // PSN
	msn      uint32 // messages completed

	established bool // a packet has been received
	lastTold    bool // LAST_WQE_REACHED was raised
	waiting     bool // a sequence or RNR NAK was sent: no other until expected arrives

	kind    message
	to      *sharedQueue // XRC: the queue of the last request
	recv    receive      // the receive taken, held until it completes
	recvOff uint64       // SEND: bytes received
	va      uint64       // WRITE: address of the next packet's payload
	rkey    uint32
	resid   uint32 // WRITE: bytes still to come
	total   uint32 // WRITE: bytes of the message

	ackDue  bool // acknowledge everything up to ackPSN
	ackMay  bool // that may wait for a packet to leave with; see resp_owed.go
	ackMust bool // it may not, whatever completes a receive meanwhile
	ackOwed bool // it waits
	ackPSN  uint64
	habit   habit
	nakDue  bool // NAK with syndrome nak at nakPSN
	refused bool // nak is sent last; then ERR
	nak     wire.Syndrome
	nakPSN  uint64

	// takenBack has the keys of windows that were bound through this queue pair and that LOCAL_INV or Close ended.
	// A SEND_WITH_INV of such a key is delivered as if it had ended the window. nil before the first.
	takenBack *keyRing

	out     []answer // from outHead on, by PSN
	outHead int

	// results holds the last READs, atomics and ATOMIC_WRITEs, as many as the peer may have outstanding: a repeated
	// request is answered from here and not executed again, and a repetition of an older one is dropped.
	results    []result
	nextResult int

	// disk is the job that the responder waits for: a FLUSH, or pages of the next request. nil: none. Request packets are
	// parked behind it, by PSN, each PSN once.
	disk *diskJob
	// reading is the job that brings in pages of the next answer's data. nil: none.
	reading *diskJob
}

// answer is an unsent READ response or atomic answer. FLUSH and ATOMIC_WRITE are answered by an
// empty READ response.
type answer struct {
	psn      uint64 // of the next packet
	end      uint64 // after its last packet
	first    uint64 // of its first packet
	va       uint64 // READ: address of the next packet's data
	left     uint32 // READ: bytes
	rkey     uint32
	read     bool              // a READ response, not an atomic answer
	repeated bool              // the request was executed before: this repeats its answer
	flush    bool              // of a FLUSH: it takes none of the responder resources
	orig     uint64            // atomic
	pd       *protectionDomain // READ: the domain of its keys
}

// result is what the responder keeps of a READ, atomic or ATOMIC_WRITE.
type result struct {
	psn   uint64 // of the first packet
	orig  uint64 // atomic
	va    uint64 // READ
	n     uint32 // READ: bytes
	rkey  uint32 // READ
	read  bool
	write bool // an ATOMIC_WRITE: there is no orig
}

// begin initializes the responder from the attributes of RTR.
func (r *responder) begin(a *verbs.QPAttr) {
	*r = responder{out: r.out[:0], results: r.results[:0]}
	r.expected = psnBase + uint64(a.RQPSN)
}

// stop discards all unsent answers.
func (r *responder) stop() {
	r.out, r.outHead = r.out[:0], 0
	r.ackDue, r.nakDue, r.refused = false, false, false
	r.kind = noMessage
}

// pending returns the number of unsent answers.
func (r *responder) pending() int { return len(r.out) - r.outHead }

// fresh returns the number of unsent answers to new requests. Repeated answers do not count
// against the peer's limit: it requests them because it has not received the first, and both may
// be here together.
func (r *responder) fresh() (n int) {
	for i := r.outHead; i < len(r.out); i++ {
		if !r.out[i].repeated && !r.out[i].flush {
			n++
		}
	}
	return n
}

// receives reports whether a packet is accepted: the state receives, and the packet is from the
// peer.
func (q *queuePair) receives(k *fabric.Packet) bool {
	return q.listens() && q.route.Carries(k)
}

// listens reports whether the queue pair is in a state that receives.
func (q *queuePair) listens() bool {
	switch q.current() {
	case verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE:
		return true
	}
	return false
}

// onRequest handles a request packet. It reports whether the packet is kept, to be released
// later.
func (q *queuePair) onRequest(k *fabric.Packet, h *wire.Header) (kept bool) {
	r := &q.resp
	psn := extend(h.PSN, r.expected)
	// Only the expected packet: its PSN was in the REP, so it proves that the REP has arrived.
	if psn == r.expected && !r.established {
		q.establish()
	}
	if r.refused {
		return false
	}
	switch {
	case psn < r.expected:
		q.onDuplicate(h, psn)
	case r.disk != nil && psn == r.expected:
		if q.isLong(r.disk) {
			q.sendNak(wire.RNRNak(longestRNR), psn)
		}
	case r.disk != nil:
		return q.parkRequest(r.disk, k, psn)
	case psn > r.expected:
		if !r.waiting {
			r.waiting = true
			q.sendNak(wire.Nak(wire.NakSequence), r.expected)
		}
	default:
		q.onExpected(k, h, psn)
		if j := r.disk; j != nil && j.kind == toWrite { // it was not executed: its memory is brought in
			return q.parkRequest(j, k, psn)
		}
	}
	return false
}

// establish handles the first packet of the peer: in RTR it raises COMM_EST. In any state it
// informs the connection manager, which may have lost an RTU: its passive side is then in RTS, as
// in librdmacm.
func (q *queuePair) establish() {
	q.resp.established = true
	q.prove()
	if q.current() == verbs.QPSRTR {
		q.raise(verbs.EventCommEst)
	}
	if q.dev.onCommEst != nil {
		q.dev.onCommEst(q)
	}
}

// onExpected executes a packet that is in sequence.
func (q *queuePair) onExpected(k *fabric.Packet, h *wire.Header, psn uint64) {
	r := &q.resp
	if r.waiting {
		r.waiting = false
		r.nakDue = false // it was for this packet
	}
	n := uint64(k.PayloadLen)
	op := h.Opcode
	starts, ends := op.Starts(), op.Ends()
	// Check which packets may follow which (rxe: check_op_seq), and their lengths (check_length).
	if starts != (r.kind == noMessage) {
		q.refuse(psn, wire.NakInvalid)
		return
	}
	if op.HasPayload() && (n > uint64(q.mtu) || (!ends && n != uint64(q.mtu)) || (ends && !starts && n == 0)) {
		q.refuse(psn, wire.NakInvalid)
		return
	}
	if q.xrc != nil {
		if code, ok := q.addressed(h); !ok {
			q.refuseAddress(psn, code)
			return
		}
	}
	switch op.Op() {
	case wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLast, wire.OpSendLastImm, wire.OpSendOnly, wire.OpSendOnlyImm,
		wire.OpSendLastInv, wire.OpSendOnlyInv:
		q.onSend(k, h, psn, starts, ends)
	case wire.OpWriteFirst, wire.OpWriteMiddle, wire.OpWriteLast, wire.OpWriteLastImm, wire.OpWriteOnly, wire.OpWriteOnlyImm:
		q.onWrite(k, h, psn, starts, ends)
	case wire.OpReadRequest:
		q.onRead(h, psn)
	case wire.OpCompareSwap, wire.OpFetchAdd:
		q.onAtomic(h, psn)
	case wire.OpFlush:
		q.onFlush(h, psn)
	case wire.OpAtomicWrite:
		q.onAtomicWrite(k, h, psn)
	default:
		q.refuse(psn, wire.NakInvalid) // an unsupported operation
	}
}

// executed records that the packet in sequence is done.
func (q *queuePair) executed(h *wire.Header, psn uint64, ends bool) {
	r := &q.resp
	r.expected = psn + 1
	if ends {
		r.msn++
		r.kind = noMessage
	}
	if h.AckReq {
		q.acknowledge(psn)
	}
}

// acknowledge schedules an acknowledgement up to psn for the end of Progress.
func (q *queuePair) acknowledge(psn uint64) {
	r := &q.resp
	if q.req.window.lossy { // within the fabric nothing is owed
		r.ackMust = r.ackDue && !r.ackMay
		r.ackMay = false
	}
	if !r.ackDue || psn > r.ackPSN {
		r.ackDue, r.ackPSN = true, psn
	}
	q.dev.activate(q)
}

// sendNak schedules a NAK after the answers that are due.
func (q *queuePair) sendNak(s wire.Syndrome, psn uint64) {
	r := &q.resp
	r.nakDue, r.nak, r.nakPSN = true, s, psn
	q.dev.activate(q)
}

// notReady answers a request that needs a receive while none is posted.
func (q *queuePair) notReady(psn uint64) {
	q.resp.waiting = true
	q.sendNak(wire.RNRNak(q.attr.MinRNRTimer), psn)
}

// refuse answers a request that cannot be executed; the queue pair moves to ERR after the NAK
// (class C errors). If the request has taken a receive, its completion reports the reason;
// otherwise an asynchronous event does.
func (q *queuePair) refuse(psn uint64, code wire.NakCode) {
	status, event := verbs.WCRemInvReqErr, verbs.EventQPReqErr
	if code == wire.NakAccess {
		status, event = verbs.WCRemAccessErr, verbs.EventQPAccessErr
	}
	if q.resp.kind == sendMessage {
		q.refuseRecv(psn, code, status)
		return
	}
	q.raise(event)
	q.giveUp(psn, code)
}

// refuseRecv is refuse for a request whose receive completes with status.
func (q *queuePair) refuseRecv(psn uint64, code wire.NakCode, status verbs.WCStatus) {
	if v, ok := q.nextRecv(); ok {
		q.hold(v)
		q.completeRecvError(status, vendorRecv)
	}
	q.giveUp(psn, code)
}

func (q *queuePair) giveUp(psn uint64, code wire.NakCode) {
	r := &q.resp
	r.refused, r.kind = true, noMessage
	q.forgetAck()
	q.sendNak(wire.Nak(code), psn)
}
