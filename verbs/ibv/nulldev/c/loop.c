/* Loopback: the send queue, and the memory that requests name. All functions of this file run
 * with nd_mu held. */
#include "nd.h"

static uint8_t wc_opcode(int op)
{
	static const uint8_t t[] = {
		[VB_WR_RDMA_WRITE] = VB_WC_RDMA_WRITE, [VB_WR_RDMA_WRITE_WITH_IMM] = VB_WC_RDMA_WRITE,
		[VB_WR_SEND] = VB_WC_SEND, [VB_WR_SEND_WITH_IMM] = VB_WC_SEND, [VB_WR_RDMA_READ] = VB_WC_RDMA_READ,
		[VB_WR_ATOMIC_CMP_AND_SWP] = VB_WC_COMP_SWAP, [VB_WR_ATOMIC_FETCH_AND_ADD] = VB_WC_FETCH_ADD,
		[VB_WR_LOCAL_INV] = VB_WC_LOCAL_INV, [VB_WR_BIND_MW] = VB_WC_BIND_MW, [VB_WR_SEND_WITH_INV] = VB_WC_SEND,
		[VB_WR_FLUSH] = VB_WC_FLUSH, [VB_WR_ATOMIC_WRITE] = VB_WC_ATOMIC_WRITE,
	};

	return t[op];
}

/* nd_complete completes the oldest request. The slot of an unsignaled success is freed with the
 * next completion. */
void nd_complete(struct nd_qp *qp, struct nd_send *w, int status, uint32_t bytes)
{
	struct nd_cqe e = { .wr_id = w->wr.wr_id, .qp = qp, .qp_num = qp->qp.qp_base.qp_num };

	qp->sq_head++;
	qp->unsignaled++;
	if (status == VB_WC_SUCCESS && !qp->sig_all && !(w->wr.send_flags & VB_SEND_SIGNALED))
		return;
	e.retire = qp->unsignaled;
	qp->unsignaled = 0;
	e.status = status;
	if (status == VB_WC_SUCCESS) {
		e.opcode = wc_opcode(w->wr.opcode);
		e.byte_len = bytes;
	} else {
		/* The other members are undefined (semantics 24): fill them with garbage for a program
		 * that reads them. */
		e.opcode = 0x7f;
		e.byte_len = e.imm = 0xdeadbeef;
		e.wc_flags = VB_WC_WITH_IMM;
		e.vendor_err = ND_VENDOR_ERR | status;
	}
	nd_cq_push(qp->scq, &e);
}

void nd_flush_sends(struct nd_qp *qp)
{
	if (qp->instant)
		return;
	while (qp->sq_head != qp->sq_tail)
		nd_complete(qp, &qp->sends[qp->sq_head & qp->sq_mask], VB_WC_WR_FLUSH_ERR, 0);
}

void nd_flush_recvs(struct nd_qp *qp)
{
	for (;;) {
		struct nd_cqe e = { .status = VB_WC_WR_FLUSH_ERR };
		bool more;

		pthread_spin_lock(&qp->rq_lock); /* for instant mode, which posts without nd_mu */
		more = qp->rq.head != qp->rq.tail;
		if (more)
			e.wr_id = qp->rq.ring[qp->rq.head++ & qp->rq.mask].wr_id;
		pthread_spin_unlock(&qp->rq_lock);
		if (!more)
			return;
		e.qp = qp;
		e.qp_num = qp->qp.qp_base.qp_num;
		e.recv = e.retire = 1;
		e.opcode = 0x7f;
		e.vendor_err = ND_VENDOR_ERR | VB_WC_WR_FLUSH_ERR;
		nd_cq_push(qp->rcq, &e);
	}
}

/* failed moves the queue to its state after a failed request (IBTA 10.3.1): UC and UD go to SQE,
 * where sends are flushed and receives continue. */
static void failed(struct nd_qp *qp)
{
	int type = qp->qp.qp_base.qp_type;

	if (type == VB_QPT_RC || type == VB_QPT_XRC_SEND) {
		nd_qp_error(qp);
		return;
	}
	qp->state = VB_QPS_SQE;
	nd_flush_sends(qp);
}

enum { ACK_TIMEOUT_UNIT_NS = 4096 };

/* patience is the time that a request waits for its peer. */
static uint64_t patience(const struct nd_qp *qp)
{
	if (!qp->attr.timeout)
		return 0;
	return ((uint64_t)ACK_TIMEOUT_UNIT_NS << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
}

/* The RNR NAK timers in units of 10 us (IBTA table 45). */
static const uint32_t rnr_timers[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
	768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

enum { RNR_UNIT_NS = 10000, RNR_FOR_EVER = 7 };

static bool rnr_over(struct nd_qp *qp)
{
	struct nd_qp *p = nd_qp_by_num(qp->attr.dest_qp_num);

	if (qp->attr.rnr_retry == RNR_FOR_EVER)
		return nd_wait(qp, true, 0);
	if (!qp->attr.rnr_retry || !p)
		return true;
	return nd_wait(qp, true, (uint64_t)qp->attr.rnr_retry * rnr_timers[p->attr.min_rnr_timer] * RNR_UNIT_NS);
}

/* nd_progress executes the requests that it can, in order; the others wait. */
void nd_progress(struct nd_qp *qp)
{
	if (qp->instant || qp->main || qp->late || !qp->sends)
		return;
	if (qp->state == VB_QPS_ERR || qp->state == VB_QPS_SQE)
		nd_flush_sends(qp);
	while (qp->sq_head != qp->sq_tail && !nd_fatal(qp->ctx->dev)) {
		struct nd_send *w = &qp->sends[qp->sq_head & qp->sq_mask];
		int status = VB_WC_SUCCESS;
		uint32_t bytes = 0;
		enum nd_outcome o;

		if (qp->state != VB_QPS_RTS && !(qp->state == VB_QPS_SQD && (int32_t)(qp->drain_to - qp->sq_head) > 0))
			break;
		o = qp->qp.qp_base.qp_type == VB_QPT_UD ? nd_datagram(qp, w, &status) : nd_carry(qp, w, &status, &bytes);
		if (o == ND_NO_PEER) {
			if (!nd_wait(qp, false, patience(qp)))
				return;
			status = VB_WC_RETRY_EXC_ERR;
		} else if (o == ND_NO_RECV) {
			if (!rnr_over(qp))
				return;
			status = VB_WC_RNR_RETRY_EXC_ERR;
		}
		nd_unwait(qp);
		nd_complete(qp, w, status, bytes);
		if (status != VB_WC_SUCCESS) {
			failed(qp);
			return;
		}
	}
	if (qp->state == VB_QPS_SQD && qp->draining && (int32_t)(qp->drain_to - qp->sq_head) <= 0) {
		qp->draining = false;
		if (qp->attr.en_sqd_async_notify)
			nd_async(qp->ctx, qp, VB_EVENT_SQ_DRAINED);
	}
}

struct nd_bytes nd_bytes_of(struct nd_pd *pd, const struct vb_sge *sge, int n, const uint8_t *inl, uint64_t len)
{
	struct nd_bytes b = { .pd = pd, .sge = sge, .n = n, .inl = inl, .len = len };

	if (!inl)
		for (b.len = 0, n = 0; n < b.n; n++)
			b.len += sge[n].length;
	return b;
}

/* nd_bytes_ok reports whether all elements permit this access. Keys of windows are for peers. */
bool nd_bytes_ok(const struct nd_bytes *b, unsigned access)
{
	if (b->inl)
		return true;
	for (int i = 0; i < b->n; i++) {
		const struct vb_sge *s = &b->sge[i];
		struct nd_key *k = nd_key_find(s->lkey);

		if (s->length && (!k || k->window || !nd_reach(NULL, b->pd, s->lkey, s->addr, s->length, access)))
			return false;
	}
	return true;
}

void nd_copy_in(void *to, const struct nd_bytes *from)
{
	uint8_t *p = to;

	if (from->inl) {
		memcpy(to, from->inl, from->len);
		return;
	}
	for (int i = 0; i < from->n; i++) {
		const struct vb_sge *s = &from->sge[i];

		if (!s->length)
			continue;
		memmove(p, (void *)(uintptr_t)nd_reach(NULL, from->pd, s->lkey, s->addr, s->length, 0), s->length);
		p += s->length;
	}
}

void nd_copy_out(const struct nd_bytes *to, uint64_t skip, const void *from, uint64_t len)
{
	const uint8_t *p = from;

	for (int i = 0; i < to->n && len; i++) {
		const struct vb_sge *s = &to->sge[i];
		uint64_t n;

		if (skip >= s->length) {
			skip -= s->length;
			continue;
		}
		n = s->length - skip < len ? s->length - skip : len;
		memmove((void *)(uintptr_t)(nd_reach(NULL, to->pd, s->lkey, s->addr, s->length, 0) + skip), p, n);
		skip = 0;
		p += n;
		len -= n;
	}
}

void nd_copy(const struct nd_bytes *to, uint64_t skip, const struct nd_bytes *from)
{
	if (from->inl) {
		nd_copy_out(to, skip, from->inl, from->len);
		return;
	}
	for (int i = 0; i < from->n; i++) {
		const struct vb_sge *s = &from->sge[i];

		if (!s->length)
			continue;
		nd_copy_out(to, skip, (void *)(uintptr_t)nd_reach(NULL, from->pd, s->lkey, s->addr, s->length, 0), s->length);
		skip += s->length;
	}
}
