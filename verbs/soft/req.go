package soft

import (
	"math"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// requester is the sending half of a queue pair. Positions count work requests, PSNs count
// packets. Both only grow, except that next and cur go back to resend.
//
//	requests   tail ───────── cur ───────── fresh ────────── head
//	             │ outstanding │  to resend    │  not started    │
//	PSNs       acked ──────── next ──────── sent
//
// Everything below acked is acknowledged, and answered if it needs an answer. next is the PSN to
// send next: equal to sent, or below it after a timeout or a NAK (go-back-N: everything from
// there on is sent again).
//
// Implements: IBTA volume 1, 9.7 (reliable service), the requester's side.
type requester struct {
	tail  uint64 // oldest request not completed
	cur   uint64 // request to send from
	fresh uint64 // first request without PSNs
	read  uint64 // no request below waits for an answer
	open  int    // started requests that wait for an answer of their own
	reads int    // those of open that count against MaxRdAtomic

	acked uint64
	next  uint64
	sent  uint64

	progressTicket uint32 // ticket of the last timeout without progress, see fabric.Port.AskProgress; 0: none
	retries        uint8  // left
	rnr            uint8  // left; verbs.RNRRetryInfinite never ends
	rnrWait        bool   // the deadline is the end of an RNR delay
	notReady       bool   // the receiver was not ready for the packet at acked
	nakked         bool   // a sequence NAK for the packet at acked was taken
	noRoom         bool   // the link has no room for the next packet
	bad            bool   // the request at badAt failed locally and waits for those before it
	badAt          uint64
	implied        uint64 // READ PSN that an acknowledgement skipped; see ackTo
	window         sendWindow
	trip           roundTrip
	expires        time.Duration // when the acknowledgement timer uses up a retry; 0: never
	sinceAckReq    uint32        // packets since the last one that requested an acknowledgement
	notifyDrained  bool

	// reading is the job that brings in pages of the next request's payload. storing is the job that brings in pages into
	// which the next response is stored; responses are parked behind it. nil: none.
	reading *diskJob
	storing *diskJob
}

// begin initializes the requester from the attributes of RTS, with the window w.
func (r *requester) begin(a *verbs.QPAttr, w sendWindow) {
	*r = requester{tail: r.tail, cur: r.tail, fresh: r.tail, read: r.tail}
	r.acked = psnBase + uint64(a.SQPSN)
	r.next, r.sent = r.acked, r.acked
	r.window = w
	r.reload(a)
}

// reload restores the retry counts, after progress.
func (r *requester) reload(a *verbs.QPAttr) {
	r.retries, r.rnr = a.RetryCnt, a.RNRRetry
	r.implied, r.progressTicket, r.notReady, r.nakked = 0, 0, false, false
}

// none is a PSN beyond every packet's.
const none = math.MaxUint64

// unread returns the PSN of the first missing answer, or none.
func (r *requester) unread(sq *sendQueue) uint64 {
	if r.open == 0 {
		return none
	}
	for r.read = max(r.read, r.tail); r.read < r.fresh; r.read++ {
		if w := sq.at(r.read); w.answered() && !w.finished {
			return w.first + uint64(w.received)
		}
	}
	return none
}

// seek makes psn the next to send.
func (r *requester) seek(sq *sendQueue, psn uint64) {
	r.next = psn
	r.trip.forget()
	for r.cur = r.tail; r.cur < r.fresh; r.cur++ {
		if w := sq.at(r.cur); psn < w.first+uint64(w.npkts) {
			return
		}
	}
}

// work does the pending work of an activated queue pair.
func (q *queuePair) work() {
	if q.closed.Load() {
		return
	}
	s := q.current()
	switch {
	case s == verbs.QPSErr:
		q.flush()
		return
	case !q.service.reliable:
		q.workUnreliable(s)
		return
	}
	switch s {
	case verbs.QPSRTR:
		q.respond()
	case verbs.QPSRTS, verbs.QPSSQD:
		if q.respond(); q.current() == verbs.QPSErr {
			return // it has refused a request
		}
		next, fresh := q.req.next, q.req.sent
		q.emit()
		if q.req.sent > fresh {
			q.resp.habit.answered(q.dev.now)
		}
		if q.resp.ackDue && q.mayOwe() {
			q.acknowledgeOrOwe(q.req.next > next && q.resp.pending() == 0) // never before the answers to READs
		}
	}
}

// ackTo handles an acknowledgement of everything below psn. If it skips a READ or atomic whose
// answer is missing, the answer was lost: ackTo requests everything from there on again, once. If
// that is lost too, the timer expires.
//
// Implements: IBTA volume 1, 9.7.5.1.1 and 9.7.7.1 (implied NAK).
func (q *queuePair) ackTo(psn uint64) {
	r := &q.req
	sq := q.sq.Load()
	limit := r.unread(sq)
	if psn <= limit {
		q.progress(psn)
		return
	}
	q.progress(limit)
	if r.implied != limit && r.next > limit && !r.rnrWait && q.current() != verbs.QPSErr {
		r.implied = limit
		r.window.lost()
		r.seek(sq, limit)
		q.dev.activate(q)
	}
}

// progress completes the requests below psn, the lowest PSN not acknowledged.
func (q *queuePair) progress(psn uint64) {
	r := &q.req
	if psn <= r.acked || psn == none {
		return
	}
	if r.window.lossy {
		q.measure(psn)
	}
	r.acked = psn
	r.reload(&q.attr)
	sq := q.sq.Load()
	if psn > r.next {
		r.seek(sq, psn) // it acknowledges packets sent before going back
	}
	q.retire(sq)
	if q.current() == verbs.QPSErr {
		return
	}
	// An RNR delay ends: the peer has executed the request that it was not ready for, such as a FLUSH that is written now.
	r.rnrWait, q.deadline = false, 0
	q.startTimer()
	q.dev.activate(q) // the window may be open again, or a fence passed
}

// prove notes that the peer is at its address, where more than the first packet may be sent now. The path may have a
// socket of its own now, which takes the place of another path's.
func (q *queuePair) prove() {
	if q.req.window.prove() {
		q.dev.connect(q.route.Far())
		q.dev.activate(q)
	}
}

// measure adapts the window and the time of probes to an acknowledgement of everything below psn.
func (q *queuePair) measure(psn uint64) {
	r := &q.req
	r.trip.took(psn, q.dev.now)
	// The probe is the packet at acked. If the acknowledgement covers more than the probe, earlier packets may
	// still arrive, so the rest is not sent again (as RFC 5682, F-RTO). If they are lost, a NAK or the next
	// probe detects it.
	late := psn > r.acked+1 || psn == r.sent
	if r.window.probed(late) && late && !r.bad { // a request that failed locally stops the queue
		r.seek(q.sq.Load(), r.sent)
	}
	r.window.took(psn - r.acked)
}

// startTimer starts the acknowledgement timer unless it runs, if a packet is unacknowledged or
// finds no room on the link.
func (q *queuePair) startTimer() {
	r := &q.req
	if r.next == r.acked && !r.noRoom || q.deadline != 0 || r.rnrWait {
		return
	}
	r.expires = 0
	if t := verbs.AckTimeout(q.attr.Timeout); t != 0 {
		r.expires = q.dev.now + t
	}
	q.aimTimer()
}

// aimTimer sets the deadline to the next probe, or to the end of the acknowledgement timer if that is
// earlier.
func (q *queuePair) aimTimer() {
	r := &q.req
	at := r.expires
	if r.window.lossy {
		if t := q.dev.now + r.trip.timeout(); at == 0 || t < at {
			at = t
		}
	}
	if at != 0 {
		q.setDeadline(at)
	}
}

// onTimer handles the deadline.
func (q *queuePair) onTimer() {
	if s := q.current(); q.closed.Load() || (s != verbs.QPSRTS && s != verbs.QPSSQD) {
		return
	}
	r := &q.req
	if r.rnrWait {
		r.rnrWait = false
		q.dev.activate(q)
		return
	}
	if r.storing != nil { // the peer has answered
		q.startTimer()
		return
	}
	if r.expires == 0 || q.dev.now < r.expires {
		q.probe()
		return
	}
	if r.progressTicket != 0 && !q.route.Progressed(r.progressTicket) {
		q.startTimer() // the peer's engine has not run since: no retry is used up
		return
	}
	r.progressTicket = q.dev.p.AskProgress(q.route)
	if r.noRoom && r.next == r.acked { // the last packet has not even reached the link
		q.retry(r.acked, verbs.WCRetryExcErr)
		q.startTimer()
		return
	}
	r.window.probe()
	q.resend(r.acked, verbs.WCRetryExcErr)
}

// probe sends the first unacknowledged packet again, before the acknowledgement timer ends. It uses up no
// retry: a peer that is late but answers before its last retry is not dead.
func (q *queuePair) probe() {
	r := &q.req
	r.trip.probes = min(r.trip.probes+1, maxDoubled)
	q.dev.again.Probes++
	// Without an acknowledgement timeout there is no last retry: in place of a third try there is one each minute.
	if r.next > r.acked && (!r.window.unproven || r.expires == 0 && (r.trip.probes == maxDoubled || r.window.again(true))) {
		r.window.probe()
		r.seek(q.sq.Load(), r.acked)
		q.dev.activate(q)
	}
	q.aimTimer()
}

// resend goes back to psn, or fails when no retry is left.
func (q *queuePair) resend(psn uint64, status verbs.WCStatus) {
	r := &q.req
	if r.next <= psn {
		return // already went back
	}
	q.retry(psn, status)
}

// retry is resend, even if no packet is outstanding.
func (q *queuePair) retry(psn uint64, status verbs.WCStatus) {
	r := &q.req
	if r.retries == 0 {
		q.fail(status, vendorRetry)
		return
	}
	r.retries--
	r.window.lost()
	q.deadline = 0
	if r.next > psn && !r.window.again(r.retries == 0) {
		q.startTimer()
		return
	}
	r.seek(q.sq.Load(), psn)
	q.dev.activate(q)
}

// rnrDelay waits for the receiver to become ready, or fails when no retry is left.
func (q *queuePair) rnrDelay(psn uint64, delay time.Duration) {
	r := &q.req
	r.retries = q.attr.RetryCnt // the peer has answered
	if r.rnrWait || r.next <= psn {
		return
	}
	if r.rnr == 0 {
		q.failAt(psn, verbs.WCRNRRetryExcErr, vendorRetry)
		return
	}
	if r.rnr != verbs.RNRRetryInfinite {
		r.rnr--
	}
	r.seek(q.sq.Load(), psn)
	r.rnrWait, r.notReady = true, true
	q.deadline = 0
	q.setDeadline(q.dev.now + delay)
}
