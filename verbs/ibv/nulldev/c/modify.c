/* The state machine of queue pairs; its permitted steps are in transition.c. */
#include "nd.h"

static void set_state(struct nd_qp *qp, int s)
{
	pthread_spin_lock(&qp->sq_lock);
	pthread_spin_lock(&qp->rq_lock);
	qp->state = s;
	pthread_spin_unlock(&qp->rq_lock);
	pthread_spin_unlock(&qp->sq_lock);
}

/* nd_qp_error moves a queue pair to ERR: outstanding requests are flushed, unless the script
 * delays that. With nd_mu. */
void nd_qp_error(struct nd_qp *qp)
{
	uint32_t polls;

	if (qp->state == VB_QPS_ERR || qp->state == VB_QPS_RESET)
		return;
	set_state(qp, VB_QPS_ERR);
	nd_unwait(qp);
	if (nd_late_on(&polls)) {
		qp->late = polls + 1;
	} else {
		nd_flush_sends(qp);
		nd_flush_recvs(qp);
	}
	if (qp->srq)
		nd_async(qp->ctx, qp, VB_EVENT_QP_LAST_WQE_REACHED);
}

static void reset(struct nd_qp *qp)
{
	nd_unwait(qp);
	set_state(qp, VB_QPS_RESET);
	if (qp->scq)
		nd_cq_clean(qp->scq, qp, false);
	if (qp->rcq)
		nd_cq_clean(qp->rcq, qp, false);
	qp->sq_head = qp->sq_tail = qp->sq_retired = qp->unsignaled = qp->late = 0;
	qp->rq.head = qp->rq.tail = qp->rq.retired = 0;
	qp->comm_est = qp->draining = qp->silent = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

/* bad_values reports whether the device refuses the attributes. */
static bool bad_values(const struct nd_qp *qp, const struct vb_qp_attr *a, int mask)
{
	return ((mask & VB_QP_PORT) && a->port_num != nd_port_of(qp->ctx)) ||
	       ((mask & VB_QP_PKEY_INDEX) && a->pkey_index != 0) ||
	       ((mask & VB_QP_PATH_MTU) && (a->path_mtu < VB_MTU_256 || a->path_mtu > VB_MTU_4096)) ||
	       ((mask & VB_QP_AV) && !nd_path_valid(qp->ctx, &a->ah_attr)) ||
	       ((mask & VB_QP_RETRY_CNT) && a->retry_cnt > 7) || ((mask & VB_QP_RNR_RETRY) && a->rnr_retry > 7) ||
	       ((mask & VB_QP_TIMEOUT) && a->timeout > 31) || ((mask & VB_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31) ||
	       ((mask & VB_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > ND_MAX_RD_ATOM) ||
	       ((mask & VB_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > ND_MAX_RD_ATOM) ||
	       ((mask & VB_QP_CAP) != 0);
}

static void take(struct nd_qp *qp, const struct vb_qp_attr *a, int mask)
{
	struct vb_qp_attr *t = &qp->attr;

#define TAKE(bit, field) do { if (mask & (bit)) t->field = a->field; } while (0)
	TAKE(VB_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(VB_QP_PKEY_INDEX, pkey_index);
	TAKE(VB_QP_PORT, port_num);
	TAKE(VB_QP_QKEY, qkey);
	TAKE(VB_QP_AV, ah_attr);
	TAKE(VB_QP_PATH_MTU, path_mtu);
	TAKE(VB_QP_TIMEOUT, timeout);
	TAKE(VB_QP_RETRY_CNT, retry_cnt);
	TAKE(VB_QP_RNR_RETRY, rnr_retry);
	TAKE(VB_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(VB_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(VB_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(VB_QP_PATH_MIG_STATE, path_mig_state);
#undef TAKE
	if (mask & VB_QP_RQ_PSN)
		t->rq_psn = a->rq_psn & 0xffffff;
	if (mask & VB_QP_SQ_PSN)
		t->sq_psn = a->sq_psn & 0xffffff;
	if (mask & VB_QP_DEST_QPN)
		t->dest_qp_num = a->dest_qp_num & 0xffffff;
	if (mask & VB_QP_ALT_PATH) {
		t->alt_ah_attr = a->alt_ah_attr;
		t->alt_port_num = a->alt_port_num;
		t->alt_timeout = a->alt_timeout;
		t->alt_pkey_index = a->alt_pkey_index;
	}
}

ND_EXPORT int ibv_modify_qp(struct vb_qp *q, struct vb_qp_attr *a, int mask)
{
	struct nd_qp *qp = nd_qp_real(q);
	int from, to;

	ND_CALL("ibv_modify_qp", nd_dev_of(q->context));
	nd_command(q->context);
	nd_lock();
	from = qp->state;
	to = mask & VB_QP_STATE ? a->qp_state : from;
	if (((mask & VB_QP_CUR_STATE) && a->cur_qp_state != from) || nd_transition(q->qp_type, from, to, mask) || bad_values(qp, a, mask)) {
		nd_unlock();
		return EINVAL;
	}
	if (to == VB_QPS_RESET) {
		reset(qp);
	} else if (to == VB_QPS_ERR) {
		nd_qp_error(qp);
	} else {
		take(qp, a, mask);
		if (to == VB_QPS_SQD && from != VB_QPS_SQD) {
			/* A request that waits for a peer has begun; those behind it have not. */
			qp->drain_to = qp->sq_head + (qp->waiting ? 1 : 0);
			qp->draining = true;
			qp->attr.en_sqd_async_notify = (mask & VB_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify;
		}
		set_state(qp, to);
		if (!qp->instant) {
			nd_progress(qp);
			nd_kick();
		}
	}
	q->state = to;
	nd_unlock();
	return 0;
}

ND_EXPORT int ibv_query_qp(struct vb_qp *q, struct vb_qp_attr *a, int mask, struct vb_qp_init_attr *init)
{
	struct nd_qp *qp = nd_qp_real(q);

	(void)mask;
	ND_CALL("ibv_query_qp", nd_dev_of(q->context));
	nd_command(q->context);
	nd_lock();
	*a = qp->attr;
	a->qp_state = a->cur_qp_state = q->state = qp->state;
	a->cap = qp->cap;
	a->sq_draining = qp->draining;
	*init = (struct vb_qp_init_attr){ .qp_context = q->qp_context, .send_cq = q->send_cq, .recv_cq = q->recv_cq,
		.srq = q->srq, .cap = qp->cap, .qp_type = q->qp_type, .sq_sig_all = qp->sig_all };
	nd_unlock();
	return 0;
}
