package soft

import "github.com/verbena-rdma/verbena/verbs"

// local tells whether the request is executed here and sends nothing.
func (w *sendWQE) local() bool { return w.op == verbs.WRBindMW || w.op == verbs.WRLocalInv }

// startLocal executes the request at fresh, which sends nothing and takes no
// PSN; false when it may not go yet, or failed. It completes when those before
// it have.
//
// A BIND_MW is executed when its turn comes, so that a SEND behind it can carry
// the key, and does not wait for what is outstanding. A LOCAL_INV waits for
// everything before it, fenced or not: IBTA volume 1, 10.6.5.1 (local
// invalidate fence), which rdma_rxe makes the rule (rxe_req.c,
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
