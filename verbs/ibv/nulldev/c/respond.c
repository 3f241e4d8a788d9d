/* Loopback: the responder's side of connected queue pairs. */
#include "nd.h"

static struct nd_pd *pd_of(const struct nd_qp *qp) { return nd_pd_of(qp->qp.qp_base.pd); }

/* peer_of returns the responder of a queue pair; NULL if there is none. A peer in another state,
 * of another type, or with other sequence numbers drops the request. */
static struct nd_qp *peer_of(struct nd_qp *qp)
{
	struct nd_qp *p = nd_qp_by_num(qp->attr.dest_qp_num);
	int type = qp->qp.qp_base.qp_type;

	if (type == VB_QPT_XRC_SEND)
		type = VB_QPT_XRC_RECV;
	if (!p || p->instant || (int)p->qp.qp_base.qp_type != type || nd_fatal(p->ctx->dev))
		return NULL;
	if (p->state < VB_QPS_RTR || p->state > VB_QPS_SQE)
		return NULL;
	if (!nd_leads_to(&qp->attr.ah_attr, p->ctx) || !nd_leads_to(&p->attr.ah_attr, qp->ctx))
		return NULL;
	if (p->attr.dest_qp_num != qp->qp.qp_base.qp_num || p->attr.rq_psn != qp->attr.sq_psn)
		return NULL;
	if (qp->ctx->dev->port_state != VB_PORT_ACTIVE || p->ctx->dev->port_state != VB_PORT_ACTIVE)
		return NULL;
	return p;
}

struct nd_recv *nd_recv_next(struct nd_qp *qp, struct nd_srq *srq)
{
	struct nd_rq *rq = srq ? &srq->rq : &qp->rq;

	return rq->head == rq->tail ? NULL : &rq->ring[rq->head & rq->mask];
}

void nd_recv_done(struct nd_qp *qp, struct nd_srq *srq, struct nd_cqe e)
{
	struct nd_rq *rq = srq ? &srq->rq : &qp->rq;

	e.wr_id = rq->ring[rq->head++ & rq->mask].wr_id;
	e.qp = qp;
	e.srq = srq;
	e.qp_num = qp->qp.qp_base.qp_num;
	e.recv = e.retire = 1;
	if (e.status) {
		e.opcode = 0x7f;
		e.vendor_err = ND_VENDOR_ERR | e.status;
	}
	nd_cq_push(srq && srq->cq ? srq->cq : qp->rcq, &e);
	if (srq && srq->limit && rq->tail - rq->head < srq->limit) {
		srq->limit = 0;
		nd_async(srq->ctx, srq, VB_EVENT_SRQ_LIMIT_REACHED);
	}
}

/* The responder of a request. */
struct target {
	struct nd_qp *qp;
	struct nd_srq *srq;
	struct nd_pd *pd;
	bool reliable;
};

/* refuse is an error at the responder: it goes to ERR, raises the event if no receive reports the
 * error, and the requester gets the status. An unreliable one drops the message. */
static enum nd_outcome refuse(struct target *t, int event, int status, int *out)
{
	if (!t->reliable)
		return ND_DONE;
	if (event >= 0)
		nd_async(t->qp->ctx, t->qp, event);
	nd_qp_error(t->qp);
	*out = status;
	return ND_FAILED;
}

static enum nd_outcome no_access(struct target *t, int *out)
{
	return refuse(t, VB_EVENT_QP_ACCESS_ERR, VB_WC_REM_ACCESS_ERR, out);
}

static enum nd_outcome invalid(struct target *t, int *out)
{
	return refuse(t, VB_EVENT_QP_REQ_ERR, VB_WC_REM_INV_REQ_ERR, out);
}

static bool enabled(const struct target *t, unsigned access) { return (t->qp->attr.qp_access_flags & access) == access; }

/* message executes a SEND, or the receive of a WRITE_WITH_IMM. */
static enum nd_outcome message(struct nd_qp *qp, struct nd_send *w, const struct nd_bytes *from, struct target *t, int *out)
{
	struct nd_recv *r = nd_recv_next(t->qp, t->srq);
	struct nd_cqe e = { .opcode = VB_WC_RECV, .byte_len = w->len };
	struct nd_bytes to;

	if (!r)
		return t->reliable ? ND_NO_RECV : ND_DONE;
	to = nd_bytes_of(t->pd, r->sge, r->num_sge, NULL, 0);
	e.solicited = !!(w->wr.send_flags & VB_SEND_SOLICITED);
	e.src_qp = qp->qp.qp_base.qp_num;
	if (w->wr.opcode == VB_WR_RDMA_WRITE_WITH_IMM) {
		uint64_t at = w->len ? nd_reach(t->qp, t->pd, w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr, w->len, VB_ACCESS_REMOTE_WRITE) : 1;

		if (!enabled(t, VB_ACCESS_REMOTE_WRITE))
			return invalid(t, out);
		if (!at)
			return no_access(t, out);
		if (w->len)
			nd_copy_in((void *)(uintptr_t)at, from);
		e.opcode = VB_WC_RECV_RDMA_WITH_IMM;
	} else if (w->len > to.len) {
		if (!t->reliable)
			return ND_DONE;
		e.status = VB_WC_LOC_LEN_ERR;
		nd_recv_done(t->qp, t->srq, e);
		return refuse(t, -1, VB_WC_REM_INV_REQ_ERR, out);
	} else if (!nd_bytes_ok(&to, VB_ACCESS_LOCAL_WRITE)) {
		e.status = VB_WC_LOC_PROT_ERR;
		nd_recv_done(t->qp, t->srq, e);
		t->reliable = true; /* an error at the responder itself stops an unreliable one too */
		refuse(t, -1, VB_WC_REM_OP_ERR, out);
		return qp->qp.qp_base.qp_type == VB_QPT_UC ? (*out = 0, ND_DONE) : ND_FAILED;
	} else {
		nd_copy(&to, 0, from);
	}
	if (w->wr.opcode == VB_WR_SEND_WITH_IMM || w->wr.opcode == VB_WR_RDMA_WRITE_WITH_IMM) {
		e.wc_flags |= VB_WC_WITH_IMM;
		e.imm = w->wr.imm_data;
	}
	if (w->wr.opcode == VB_WR_SEND_WITH_INV) {
		if (nd_invalidate(t->qp, w->wr.imm_data, true))
			return no_access(t, out);
		e.wc_flags |= VB_WC_WITH_INV;
		e.imm = w->wr.imm_data;
	}
	nd_recv_done(t->qp, t->srq, e);
	return ND_DONE;
}

static enum nd_outcome write_to(struct nd_send *w, const struct nd_bytes *from, struct target *t, int *out)
{
	uint64_t at;

	if (!enabled(t, VB_ACCESS_REMOTE_WRITE))
		return invalid(t, out);
	if (!w->len)
		return ND_DONE;
	at = nd_reach(t->qp, t->pd, w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr, w->len, VB_ACCESS_REMOTE_WRITE);
	if (!at)
		return no_access(t, out);
	nd_copy_in((void *)(uintptr_t)at, from);
	return ND_DONE;
}

static enum nd_outcome read_from(struct nd_send *w, const struct nd_bytes *to, struct target *t, int *out)
{
	uint64_t at;

	if (!enabled(t, VB_ACCESS_REMOTE_READ) || !t->qp->attr.max_dest_rd_atomic)
		return invalid(t, out);
	if (!w->len)
		return ND_DONE;
	at = nd_reach(t->qp, t->pd, w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr, w->len, VB_ACCESS_REMOTE_READ);
	if (!at)
		return no_access(t, out);
	nd_copy_out(to, 0, (void *)(uintptr_t)at, w->len);
	return ND_DONE;
}

static enum nd_outcome atomic_on(struct nd_send *w, const struct nd_bytes *to, struct target *t, int *out)
{
	uint64_t at, old, *p;

	if (!enabled(t, VB_ACCESS_REMOTE_ATOMIC) || !t->qp->attr.max_dest_rd_atomic || (w->wr.wr.atomic.remote_addr & 7))
		return invalid(t, out);
	at = nd_reach(t->qp, t->pd, w->wr.wr.atomic.rkey, w->wr.wr.atomic.remote_addr, 8, VB_ACCESS_REMOTE_ATOMIC);
	if (!at)
		return no_access(t, out);
	if (at & 7)
		return invalid(t, out);
	p = (uint64_t *)(uintptr_t)at;
	old = w->wr.wr.atomic.compare_add;
	if (w->wr.opcode == VB_WR_ATOMIC_FETCH_AND_ADD)
		old = __atomic_fetch_add(p, old, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(p, &old, w->wr.wr.atomic.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	nd_copy_out(to, 0, &old, 8);
	return ND_DONE;
}

/* FLUSH: a range, or the whole region. There is nothing to flush in memory here. */
static enum nd_outcome flush(struct nd_send *w, struct target *t, int *out)
{
	const uint64_t *x = w->wr.wr.words; /* remote address, length, levels, rkey */
	unsigned access = (x[2] & VB_FLUSH_GLOBAL ? VB_ACCESS_FLUSH_GLOBAL : 0) | (x[2] & VB_FLUSH_PERSISTENT ? VB_ACCESS_FLUSH_PERSISTENT : 0);
	struct nd_key *k = nd_key_find((uint32_t)x[3]);

	if (!access || (x[2] & 0xff & ~3ULL) || x[2] >> 8 > VB_FLUSH_MR)
		return invalid(t, out);
	if (!enabled(t, access))
		return invalid(t, out);
	if (x[2] >> 8 == VB_FLUSH_MR) {
		if (!k || !k->valid || k->pd != t->pd || (k->access & access) != access)
			return no_access(t, out);
		return ND_DONE;
	}
	if (!nd_reach(t->qp, t->pd, (uint32_t)x[3], x[0], x[1], access))
		return no_access(t, out);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return ND_DONE;
}

static enum nd_outcome atomic_write(struct nd_send *w, struct target *t, int *out)
{
	const uint64_t *x = w->wr.wr.words; /* remote address, the bytes, -, rkey */
	uint64_t at;

	if (!enabled(t, VB_ACCESS_REMOTE_WRITE) || (x[0] & 7))
		return invalid(t, out);
	at = nd_reach(t->qp, t->pd, (uint32_t)x[3], x[0], 8, VB_ACCESS_REMOTE_WRITE);
	if (!at)
		return no_access(t, out);
	if (at & 7)
		return invalid(t, out);
	__atomic_store_n((uint64_t *)(uintptr_t)at, x[1], __ATOMIC_SEQ_CST);
	return ND_DONE;
}

static bool is_read(int op)
{
	return op == VB_WR_RDMA_READ || op == VB_WR_ATOMIC_CMP_AND_SWP || op == VB_WR_ATOMIC_FETCH_AND_ADD;
}

/* nd_carry executes one request of a connected queue pair. */
enum nd_outcome nd_carry(struct nd_qp *qp, struct nd_send *w, int *status, uint32_t *bytes)
{
	struct nd_bytes mine = nd_bytes_of(pd_of(qp), w->sge, w->wr.num_sge, w->inl, w->len);
	struct target t = { .reliable = qp->qp.qp_base.qp_type != VB_QPT_UC };
	int op = w->wr.opcode;
	unsigned sink;

	if (op == VB_WR_LOCAL_INV || op == VB_WR_BIND_MW) {
		*status = op == VB_WR_LOCAL_INV ? nd_invalidate(qp, w->wr.imm_data, false) :
			nd_bind(qp, (struct nd_mw *)w->wr.bind_mw.mw, w->wr.bind_mw.rkey, &w->wr.bind_mw.bind_info,
				w->wr.bind_mw.mw ? w->wr.bind_mw.mw->type : 0);
		return *status ? ND_FAILED : ND_DONE;
	}
	sink = qp->ctx->profile->transport == VB_TRANSPORT_IWARP ? VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE : VB_ACCESS_LOCAL_WRITE;
	if (!nd_bytes_ok(&mine, is_read(op) ? sink : 0)) { /* iWARP: the answer is a tagged message (RFC 5040, 5.2) */
		*status = VB_WC_LOC_PROT_ERR;
		return ND_FAILED;
	}
	if (w->len > ND_MAX_MSG) {
		*status = VB_WC_LOC_LEN_ERR;
		return ND_FAILED;
	}
	if (is_read(op) && !qp->attr.max_rd_atomic) {
		*status = VB_WC_LOC_QP_OP_ERR;
		return ND_FAILED;
	}
	*bytes = w->len;
	t.qp = peer_of(qp);
	if (!t.qp)
		return t.reliable ? ND_NO_PEER : ND_DONE;
	t.srq = t.qp->srq;
	t.pd = pd_of(t.qp);
	if (t.qp->domain) {
		t.srq = nd_srq_by_num(w->wr.qp_type.xrc.remote_srqn);
		if (!t.srq || t.srq->xrcd->domain != t.qp->domain)
			return invalid(&t, status);
		t.pd = nd_pd_of(t.srq->srq.pd);
	}
	if (qp->silent) /* siw loses the connection only if the message arrives together with the reply */
		return refuse(&t, VB_EVENT_QP_FATAL, VB_WC_RETRY_EXC_ERR, status);
	t.qp->silent = false;
	if ((t.qp->state == VB_QPS_RTR || t.qp->ctx->profile->comm_est) && !t.qp->comm_est) {
		t.qp->comm_est = true;
		nd_async(t.qp->ctx, t.qp, VB_EVENT_COMM_EST);
	}
	switch (op) {
	case VB_WR_RDMA_WRITE:
		return write_to(w, &mine, &t, status);
	case VB_WR_RDMA_READ:
		return read_from(w, &mine, &t, status);
	case VB_WR_ATOMIC_CMP_AND_SWP:
	case VB_WR_ATOMIC_FETCH_AND_ADD:
		return atomic_on(w, &mine, &t, status);
	case VB_WR_FLUSH:
		return flush(w, &t, status);
	case VB_WR_ATOMIC_WRITE:
		*bytes = 8;
		return atomic_write(w, &t, status);
	default:
		return message(qp, w, &mine, &t, status);
	}
}
