package soft

import "github.com/verbena-rdma/verbena/verbs"

// local reports whether the request is executed locally and sends no packet.
func (w *sendWQE) local() bool { return w.op == verbs.WRBindMW || w.op == verbs.WRLocalInv }

// startLocal executes the request at fresh, which sends no packet and takes no PSN. It returns
// false when the request must wait or has failed. It completes after those before it.
//
// A BIND_MW executes in queue order, so that a later SEND can carry the key, and does not wait
// for outstanding requests. A LOCAL_INV waits for everything before it, fenced or not: IBTA
// volume 1, 10.6.5.1 (local invalidate fence), as rdma_rxe always does (rxe_req.c,
// rxe_wqe_is_fenced).
func (q *queuePair) startLocal(sq *sendQueue, w *sendWQE) bool {
	r := &q.req
	switch {
	case w.op == verbs.WRBindMW:
		if !q.bind(w) {
			q.markBad(w, r.cur, verbs.WCMWBindErr, vendorLocal)
			return false
		}
	case r.tail != r.fresh:
		return false
	case !q.invalidate(w.rkey):
		q.markBad(w, r.cur, verbs.WCLocQPOpErr, vendorLocal)
		return false
	}
	w.first, w.npkts, w.started = r.next, 0, true
	r.fresh++
	r.cur = r.fresh
	q.retire(sq)
	return true
}
