package soft

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// flushAccess returns the access that region or window and queue pair must permit for a FLUSH.
func flushAccess(p verbs.FlushPlacement) (a verbs.AccessFlags) {
	if p&verbs.FlushGlobal != 0 {
		a |= verbs.AccessFlushGlobal
	}
	if p&verbs.FlushPersistent != 0 {
		a |= verbs.AccessFlushPersistent
	}
	return a
}

// onFlush handles a FLUSH. Everything before it has been executed. That suffices for visibility:
// a goroutine that learns of the answer has synchronized with this engine. Persistence needs the
// file system (resp_persist.go).
//
// Implements: IBTA volume 1, annex A19; rdma_rxe (rxe_resp.c, check_qp_attr_access, check_rkey,
// process_flush): a queue pair without permission makes it an invalid request, a region without
// permission an access error, and with FlushMR the range is ignored. Reserved placements and
// levels are invalid here. FlushMR with the key of a window covers the window, not its region: its holder could have a
// large region written to the disk.
func (q *queuePair) onFlush(h *wire.Header, psn uint64) {
	if q.resp.pending() >= windowPSNs {
		return // as if lost: a correct peer never has so many outstanding
	}
	p, s := verbs.FlushPlacement(h.FlushPlacement), verbs.FlushSelectivity(h.FlushSelectivity)
	need := flushAccess(p)
	if !validFlush(p, s) || q.attr.AccessFlags&need != need {
		q.refuse(psn, wire.NakInvalid)
		return
	}
	slot, err := q.opened(h.RKey, need)
	if err != nil {
		q.refuse(psn, wire.NakAccess)
		return
	}
	mr := slot.region()
	addr, n := slot.whole()
	if s == verbs.FlushRange {
		t, err := slot.within(h.VA, h.Length)
		if err != nil {
			q.refuse(psn, wire.NakAccess)
			return
		}
		addr, n = mr.addr+(t.at-mr.iova), uint64(h.Length)
	}
	if p&verbs.FlushPersistent == 0 || n == 0 {
		q.flushed(psn, nil)
		return
	}
	q.persist(psn, mr, addr, int(n))
}

// flushed concludes a FLUSH. The answer is an empty READ response.
func (q *queuePair) flushed(psn uint64, err error) {
	if err != nil {
		q.refuse(psn, wire.NakOperation)
		return
	}
	r := &q.resp
	r.expected = psn + 1
	r.msn++
	q.queueAnswer(answer{psn: psn, end: psn + 1, first: psn, read: true, flush: true})
}

// onAtomicWrite stores 8 bytes as one word, once. It needs the permission of a WRITE and takes
// one of the resources of READs and atomics.
//
// Implements: IBTA volume 1, annex A19 (oA19-28); rdma_rxe (rxe_resp.c, check_qp_attr_access,
// check_resource, atomic_write_reply).
func (q *queuePair) onAtomicWrite(k *fabric.Packet, h *wire.Header, psn uint64) {
	r := &q.resp
	limit := int(q.attr.MaxDestRdAtomic)
	if q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 || limit == 0 || r.fresh() >= limit ||
		h.Length != wordLen || k.PayloadLen != wordLen {
		q.refuse(psn, wire.NakInvalid)
		return
	}
	t, err := q.remote(h.RKey, h.VA, wordLen, verbs.AccessRemoteWrite)
	if err != nil {
		q.refuse(psn, wire.NakAccess)
		return
	}
	word, ok := t.mr.word(t.at)
	if !ok { // not aligned
		q.refuse(psn, wire.NakInvalid)
		return
	}
	if !q.writableNow(&t, wordLen, 0) || !q.dev.enterGuard(k) {
		return // it waits, or is lost
	}
	x := &q.dev.scratch
	to := x.word[:]
	for _, from := range k.Payload {
		to = to[copy(to, from):]
	}
	if !t.mr.update(func() { atomic.StoreUint64(word, x.value()) }) {
		q.refuse(psn, wire.NakAccess)
		return
	}
	r.remember(result{psn: psn, write: true}, limit)
	h.AckReq = false // its answer acknowledges it
	q.executed(h, psn, true)
	q.queueAnswer(answer{psn: psn, end: psn + 1, first: psn, read: true})
}

// remember keeps a result, in place of the oldest of limit.
func (r *responder) remember(res result, limit int) {
	if len(r.results) < limit {
		r.results = append(r.results, res)
		return
	}
	r.results[r.nextResult%limit] = res
	r.nextResult = (r.nextResult + 1) % limit
}

// againRemembered repeats the answer of an atomic or ATOMIC_WRITE. It drops a request that is not
// remembered: the requester has had its answer, or asks for more than was agreed.
func (q *queuePair) againRemembered(psn uint64) {
	for i := range q.resp.results {
		if res := &q.resp.results[i]; res.psn == psn && !res.read {
			q.queueAnswer(answer{psn: psn, end: psn + 1, first: psn, orig: res.orig, read: res.write, repeated: true})
			return
		}
	}
}

// againFlush repeats the answer of a FLUSH, which is done, because its PSN is old. The limit
// bounds the answers that a peer can have queued here.
func (q *queuePair) againFlush(psn uint64) {
	if r := &q.resp; r.pending() < windowPSNs {
		q.queueAnswer(answer{psn: psn, end: psn + 1, first: psn, read: true, repeated: true})
	}
}
