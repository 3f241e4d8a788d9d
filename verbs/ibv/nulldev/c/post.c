/* Posting: the conditions on a request, and the queues of loopback. */
#include "nd.h"

/* The opcodes that a type of queue pair accepts: bit i is opcode i. */
static uint32_t opcodes(int type)
{
	const uint32_t sends = 1 << VB_WR_SEND | 1 << VB_WR_SEND_WITH_IMM;
	const uint32_t writes = 1 << VB_WR_RDMA_WRITE | 1 << VB_WR_RDMA_WRITE_WITH_IMM;
	const uint32_t local = 1 << VB_WR_LOCAL_INV | 1 << VB_WR_BIND_MW;

	switch (type) {
	case VB_QPT_UD:
		return sends;
	case VB_QPT_UC:
		return sends | writes | local;
	case VB_QPT_RC:
	case VB_QPT_XRC_SEND:
		return sends | writes | local | 1 << VB_WR_RDMA_READ | 1 << VB_WR_ATOMIC_CMP_AND_SWP |
		       1 << VB_WR_ATOMIC_FETCH_AND_ADD | 1 << VB_WR_SEND_WITH_INV | 1 << VB_WR_FLUSH | 1 << VB_WR_ATOMIC_WRITE;
	}
	return 0;
}

static bool may_be_inline(int op)
{
	return op == VB_WR_SEND || op == VB_WR_SEND_WITH_IMM || op == VB_WR_SEND_WITH_INV ||
	       op == VB_WR_RDMA_WRITE || op == VB_WR_RDMA_WRITE_WITH_IMM;
}

static bool no_payload(int op)
{
	return op == VB_WR_LOCAL_INV || op == VB_WR_BIND_MW || op == VB_WR_FLUSH || op == VB_WR_ATOMIC_WRITE;
}

/* nd_send_valid returns the errno with which a request is refused; 0: valid. FLUSH and
 * ATOMIC_WRITE have no form in struct ibv_send_wr: they come only from extended posting. */
int nd_send_valid(struct nd_qp *qp, const struct vb_send_wr *wr, bool extended, uint64_t *len)
{
	uint32_t op = wr->opcode;

	*len = 0;
	if (op > VB_WR_ATOMIC_WRITE || !(opcodes(qp->qp.qp_base.qp_type) & 1U << op))
		return EINVAL;
	if (!extended && (op == VB_WR_FLUSH || op == VB_WR_ATOMIC_WRITE))
		return EINVAL;
	if (qp->lean && (op == VB_WR_BIND_MW || op == VB_WR_LOCAL_INV))
		return EINVAL; /* libmlx5 would overwrite the requests behind it (_sq_overhead, mlx5_wq_overflow) */
	if (op == VB_WR_BIND_MW && !wr->bind_mw.bind_info.mr)
		return EINVAL; /* rxe's library follows it whatever the length (convert_send_wr) */
	if (op == VB_WR_BIND_MW && qp->ctx->profile->bind_most && wr->bind_mw.bind_info.length > qp->ctx->profile->bind_most)
		return EOPNOTSUPP;
	if (no_payload(op))
		return wr->send_flags & VB_SEND_INLINE ? EINVAL : 0;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
		/* Inline requests store no elements in the queue, but few need more. */
		if (!(wr->send_flags & VB_SEND_INLINE) || wr->num_sge < 0 || wr->num_sge > ND_MAX_SGE)
			return EINVAL;
	}
	for (int i = 0; i < wr->num_sge; i++)
		*len += wr->sg_list[i].length;
	if ((wr->send_flags & VB_SEND_INLINE) && (!may_be_inline(op) || *len > qp->cap.max_inline_data))
		return EINVAL;
	if (op == VB_WR_ATOMIC_CMP_AND_SWP || op == VB_WR_ATOMIC_FETCH_AND_ADD)
		if (*len != 8 || (wr->wr.atomic.remote_addr & 7))
			return EINVAL; /* rxe validate_send_wr */
	return 0;
}

uint32_t nd_send_room(const struct nd_qp *qp)
{
	return qp->sq_size - (qp->sq_tail - __atomic_load_n(&qp->sq_retired, __ATOMIC_ACQUIRE));
}

void nd_send_take(struct nd_qp *qp, const struct vb_send_wr *wr, uint64_t len)
{
	uint32_t i = qp->sq_tail++ & qp->sq_mask;
	struct nd_send *s = &qp->sends[i];

	s->wr = *wr;
	s->len = len;
	s->inl = NULL;
	qp->last_wr_id = wr->wr_id;
	if (no_payload(wr->opcode)) {
		s->wr.num_sge = 0;
	} else if (wr->send_flags & VB_SEND_INLINE) {
		uint8_t *to = qp->send_inl + (size_t)i * qp->cap.max_inline_data;

		s->inl = to;
		for (int k = 0; k < wr->num_sge; k++) {
			memcpy(to, (void *)(uintptr_t)wr->sg_list[k].addr, wr->sg_list[k].length);
			to += wr->sg_list[k].length;
		}
		s->wr.num_sge = 0;
	} else if (wr->num_sge) {
		memcpy(s->sge, wr->sg_list, wr->num_sge * sizeof(*s->sge));
	}
}

/* nd_send_state returns the errno with which a send is refused in the state of its queue pair; 0: taken. */
int nd_send_state(const struct nd_qp *qp)
{
	if (qp->qp.qp_base.state == VB_QPS_ERR && qp->ctx->profile->post_in_err)
		return -qp->ctx->profile->post_in_err;
	return qp->state >= VB_QPS_RTS || qp->ctx->profile->blind ? 0 : EINVAL;
}

int nd_post_send(struct vb_qp *q, struct vb_send_wr *wr, struct vb_send_wr **bad)
{
	struct nd_qp *qp = (struct nd_qp *)q;
	int err = 0, fault = 0, at = -1, n = 0;
	uint64_t len;

	if (__builtin_expect(__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED), 0)) {
		static struct nd_site site = { .name = "ibv_post_send" };

		if (nd_called(&site, qp->ctx->dev, false, &err)) {
			*bad = wr;
			return err;
		}
		at = nd_bad_at("ibv_post_send", &fault);
	}
	if (nd_fatal(qp->ctx->dev)) {
		*bad = wr;
		return EIO;
	}
	if (qp->instant)
		return nd_instant_send(qp, wr, bad, at, fault);
	nd_td_enter(qp->td);
	nd_lock();
	qp->n_sends++;
	for (; wr; wr = wr->next, n++) {
		if (n == at)
			err = fault;
		else if (!(err = nd_send_state(qp)) && !(err = nd_send_valid(qp, wr, false, &len)) && !nd_send_room(qp))
			err = ENOMEM;
		if (err) {
			*bad = wr;
			break;
		}
		nd_send_take(qp, wr, len);
		qp->n_send_wrs++;
	}
	if (n)
		qp->n_doorbells++;
	nd_progress(qp);
	nd_unlock();
	nd_td_leave(qp->td);
	return err;
}

/* nd_rq_put accepts a receive, or returns the errno. */
int nd_rq_put(struct nd_rq *rq, const struct vb_recv_wr *wr)
{
	struct nd_recv *r;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->tail - __atomic_load_n(&rq->retired, __ATOMIC_ACQUIRE) >= rq->size)
		return ENOMEM;
	r = &rq->ring[rq->tail++ & rq->mask];
	r->wr_id = wr->wr_id;
	r->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(r->sge, wr->sg_list, wr->num_sge * sizeof(*r->sge));
	return 0;
}

int nd_post_recv(struct vb_qp *q, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
	struct nd_qp *qp = (struct nd_qp *)q;
	int err = 0, fault = 0, at = -1, n = 0;

	if (__builtin_expect(__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED), 0)) {
		static struct nd_site site = { .name = "ibv_post_recv" };

		if (nd_called(&site, qp->ctx->dev, false, &err)) {
			*bad = wr;
			return err;
		}
		at = nd_bad_at("ibv_post_recv", &fault);
	}
	if (nd_fatal(qp->ctx->dev)) {
		*bad = wr;
		return EIO;
	}
	if (qp->instant)
		return nd_instant_recv(qp, wr, bad, at, fault);
	nd_td_enter(qp->td);
	nd_lock();
	qp->n_recvs++;
	for (; wr; wr = wr->next, n++) {
		if (n == at)
			err = fault;
		else if (qp->srq || (qp->state == VB_QPS_RESET && !qp->ctx->profile->blind))
			err = EINVAL;
		else if (q->state == VB_QPS_ERR && qp->ctx->profile->post_in_err)
			err = -qp->ctx->profile->post_in_err;
		else
			err = nd_rq_put(&qp->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
		qp->n_recv_wrs++;
	}
	if (n)
		qp->n_rdoorbells++;
	if (qp->state == VB_QPS_ERR && !qp->late)
		nd_flush_recvs(qp);
	nd_kick();
	nd_unlock();
	nd_td_leave(qp->td);
	return err;
}

int nd_post_srq_recv(struct vb_srq *s, struct vb_recv_wr *wr, struct vb_recv_wr **bad)
{
	struct nd_srq *srq = (struct nd_srq *)s;
	int err = 0, fault = 0, at = -1, n = 0;

	if (__builtin_expect(__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED), 0)) {
		static struct nd_site site = { .name = "ibv_post_srq_recv" };

		if (nd_called(&site, srq->ctx->dev, false, &err)) {
			*bad = wr;
			return err;
		}
		at = nd_bad_at("ibv_post_srq_recv", &fault);
	}
	if (nd_fatal(srq->ctx->dev)) {
		*bad = wr;
		return EIO;
	}
	nd_lock();
	nd_past.recvs++;
	for (; wr; wr = wr->next, n++) {
		err = n == at ? fault : nd_rq_put(&srq->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
		nd_past.recv_wrs++;
	}
	if (n)
		nd_past.doorbells++;
	nd_kick();
	nd_unlock();
	return err;
}
