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
	noRoom         bool   // the link has no room for the next packet
	bad            bool   // the request at badAt failed locally and waits for those before it
	badAt          uint64
	implied        uint64 // READ PSN that an acknowledgement skipped; see ackTo
	window         sendWindow
	sinceAckReq    uint32 // packets since the last one that requested an acknowledgement
	notifyDrained  bool
}

// begin initializes the requester from the attributes of RTS. lossy: its packets pass a socket.
func (r *requester) begin(a *verbs.QPAttr, lossy bool) {
	*r = requester{tail: r.tail, cur: r.tail, fresh: r.tail, read: r.tail}
	r.acked = psnBase + uint64(a.SQPSN)
	r.next, r.sent = r.acked, r.acked
	r.window = newWindow(lossy)
	r.reload(a)
}

// reload restores the retry counts, after progress.
func (r *requester) reload(a *verbs.QPAttr) {
	r.retries, r.rnr = a.RetryCnt, a.RNRRetry
	r.implied, r.progressTicket = 0, 0
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
		q.respond()
		q.emit()
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
	r.window.took(psn - r.acked)
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
	if !r.rnrWait {
		q.deadline = 0
		q.startTimer()
	}
	q.dev.activate(q) // the window may be open again, or a fence passed
}

// startTimer starts the acknowledgement timer unless it runs, if a packet is unacknowledged or
// finds no room on the link.
func (q *queuePair) startTimer() {
	r := &q.req
	if r.next == r.acked && !r.noRoom || q.deadline != 0 || r.rnrWait {
		return
	}
	if t := verbs.AckTimeout(q.attr.Timeout); t != 0 {
		q.setDeadline(q.dev.now + t)
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
	q.resend(r.acked, verbs.WCRetryExcErr)
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
	r.seek(q.sq.Load(), psn)
	q.dev.activate(q)
}

// rnrDelay waits for the receiver to become ready, or fails when no retry is left.
func (q *queuePair) rnrDelay(psn uint64, delay time.Duration) {
	r := &q.req
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
	r.rnrWait = true
	q.deadline = 0
	q.setDeadline(q.dev.now + delay)
}
