/* Queue pairs: creating, destroying, querying. */
#include "nd.h"

struct nd_qp *nd_qps[ND_MAX_QP];
static uint32_t next_qpn;
static struct nd_qp **freed; /* where the number was freed last that may be reused: a device may do so; under nd_mu */

/* number gives a queue pair its number; false if none is left. With nd_mu. */
static bool number(struct nd_qp *qp)
{
	struct nd_qp **at = freed && !*freed ? freed : NULL;

	freed = NULL;
	for (uint32_t n = 0; !at && n < ND_MAX_QP; n++) {
		uint32_t i = next_qpn++ % ND_MAX_QP;

		at = nd_qps[i] ? NULL : &nd_qps[i];
	}
	if (!at)
		return false;
	*at = qp;
	qp->qp.qp_base.qp_num = qp->qp.qp_base.handle = ND_FIRST_QPN + (at - nd_qps);
	return true;
}

static void unnumber(const struct nd_qp *qp)
{
	freed = &nd_qps[qp->qp.qp_base.qp_num - ND_FIRST_QPN];
	*freed = NULL;
}

struct nd_qp *nd_qp_by_num(uint32_t num)
{
	struct nd_qp *qp = num >= ND_FIRST_QPN && num - ND_FIRST_QPN < ND_MAX_QP ? nd_qps[num - ND_FIRST_QPN] : NULL;

	return qp;
}

/* nd_qp_real returns the queue pair behind a handle of ibv_open_qp. */
struct nd_qp *nd_qp_real(struct vb_qp *q)
{
	struct nd_qp *qp = (struct nd_qp *)q;

	return qp->main ? qp->main : qp;
}

static uint32_t round_up(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

int nd_rq_init(struct nd_rq *rq, uint32_t wrs, uint32_t sges)
{
	uint32_t n = round_up(wrs);

	rq->size = wrs;
	rq->max_sge = sges;
	rq->ring = calloc(n, sizeof(*rq->ring));
	rq->sges = calloc((size_t)n * (sges ? sges : 1), sizeof(*rq->sges));
	if (!rq->ring || !rq->sges)
		return ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		rq->ring[i].sge = rq->sges + (size_t)i * sges;
	rq->mask = n - 1;
	return 0;
}

void nd_rq_end(struct nd_rq *rq)
{
	free(rq->ring);
	free(rq->sges);
}

static int queues(struct nd_qp *qp)
{
	uint32_t n = round_up(qp->cap.max_send_wr);

	qp->sq_size = qp->ctx->profile->quanta ? n : qp->cap.max_send_wr;
	qp->sq_mask = n - 1;
	if (qp->instant) {
		qp->wqes = aligned_alloc(64, n * sizeof(*qp->wqes));
		qp->rwqes = aligned_alloc(64, round_up(qp->cap.max_recv_wr) * sizeof(*qp->rwqes));
		if (!qp->wqes || !qp->rwqes)
			return ENOMEM;
		memset(qp->wqes, 0, n * sizeof(*qp->wqes)); /* touch the pages before a measurement */
		memset(qp->rwqes, 0, round_up(qp->cap.max_recv_wr) * sizeof(*qp->rwqes));
	} else {
		uint32_t inl = qp->cap.max_inline_data, sges = qp->cap.max_send_sge;

		qp->sends = calloc(n, sizeof(*qp->sends));
		qp->send_sges = calloc((size_t)n * (sges ? sges : 1), sizeof(*qp->send_sges));
		qp->send_inl = calloc(n, inl ? inl : 1);
		if (!qp->sends || !qp->send_sges || !qp->send_inl)
			return ENOMEM;
		for (uint32_t i = 0; i < n; i++)
			qp->sends[i].sge = qp->send_sges + (size_t)i * sges;
	}
	return nd_rq_init(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge);
}

static void release(struct nd_qp *qp)
{
	nd_ring_unpin(qp->pinned);
	nd_qp_ex_end(qp);
	nd_rq_end(&qp->rq);
	free(qp->wqes);
	free(qp->rwqes);
	free(qp->sends);
	free(qp->send_sges);
	free(qp->send_inl);
	pthread_spin_destroy(&qp->sq_lock);
	pthread_spin_destroy(&qp->rq_lock);
	pthread_mutex_destroy(&qp->qp.qp_base.mutex);
	pthread_cond_destroy(&qp->qp.qp_base.cond);
	free(qp);
}

/* uses adds n to the user counts of the objects that a queue pair needs. With nd_mu. */
static void uses(struct nd_qp *qp, int n)
{
	if (qp->qp.qp_base.pd)
		((struct nd_pd *)qp->qp.qp_base.pd)->uses += n;
	if (qp->scq)
		qp->scq->uses += n;
	if (qp->rcq)
		qp->rcq->uses += n;
	if (qp->srq)
		qp->srq->uses += n;
	if (qp->xrcd)
		qp->xrcd->uses += n;
	nd_live.qp += n;
}

/* wrong checks the attributes, and writes the capacities that a profile grants. */
static int wrong(const struct nd_ctx *ctx, struct vb_qp_init_attr_ex *a, bool target, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;

	switch (a->qp_type) {
	case VB_QPT_RC: case VB_QPT_UC: case VB_QPT_UD: case VB_QPT_XRC_SEND: case VB_QPT_XRC_RECV:
		break;
	default:
		return EOPNOTSUPP;
	}
	if ((a->comp_mask & VB_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags)
		return EOPNOTSUPP;
	if (target)
		return a->xrcd && a->xrcd->context == &ctx->v.context ? 0 : EINVAL;
	if (!a->pd || a->pd->context != &ctx->v.context || !a->send_cq || (!a->recv_cq && a->qp_type != VB_QPT_XRC_SEND))
		return EINVAL;
	if (a->srq && ((struct nd_srq *)a->srq)->num)
		return EINVAL; /* XRC shared receive queues are named by their number */
	if (ctx->profile->qp)
		return ctx->profile->qp(a, ops);
	if (cap->max_send_wr > ND_MAX_QP_WR || cap->max_send_sge > ND_MAX_SGE || cap->max_inline_data > ND_MAX_INLINE)
		return EINVAL;
	if (!a->srq && (cap->max_recv_wr > ND_MAX_QP_WR || cap->max_recv_sge > ND_MAX_SGE))
		return EINVAL; /* with a shared receive queue these are ignored */
	return 0;
}

static struct vb_qp *create(struct nd_ctx *ctx, struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	bool target = a->qp_type == VB_QPT_XRC_RECV;
	int err = wrong(ctx, a, target, ops);
	struct vb_qp *base;
	struct nd_qp *qp;

	if (err == ND_SILENT)
		return NULL;
	if (err)
		return nd_null(err);
	qp = aligned_alloc(64, (sizeof(*qp) + 63) & ~63UL);
	if (!qp)
		return nd_null(ENOMEM);
	memset(qp, 0, sizeof(*qp));
	base = &qp->qp.qp_base;
	qp->ctx = ctx;
	qp->instant = ctx->instant && !target;
	qp->sig_all = a->sq_sig_all;
	pthread_spin_init(&qp->sq_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&qp->rq_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	base->context = &ctx->v.context;
	base->qp_context = a->qp_context;
	base->qp_type = a->qp_type;
	if (target) {
		qp->xrcd = (struct nd_xrcd *)a->xrcd;
		qp->domain = qp->xrcd->domain;
	} else {
		if (a->srq || a->qp_type == VB_QPT_XRC_SEND)
			a->cap.max_recv_wr = a->cap.max_recv_sge = 0; /* it has no receive queue of its own */
		base->pd = a->pd;
		qp->td = ((struct nd_pd *)a->pd)->td;
		base->send_cq = a->send_cq;
		base->recv_cq = a->recv_cq;
		base->srq = a->srq;
		qp->scq = (struct nd_cq *)a->send_cq;
		qp->rcq = (struct nd_cq *)a->recv_cq;
		qp->srq = (struct nd_srq *)a->srq;
		qp->cap = a->cap;
	}
	qp->pinned = target ? 0 : nd_qp_ring(ctx->profile, a, ops);
	if (!nd_ring_pin(qp->pinned)) {
		qp->pinned = 0;
		err = ENOMEM;
	} else {
		err = queues(qp);
	}
	if (err) {
		release(qp);
		return nd_null(err);
	}
	nd_qp_ex_init(qp, ops);
	nd_lock();
	if (number(qp)) {
		uses(qp, 1);
		nd_unlock();
		return base;
	}
	nd_unlock();
	release(qp);
	return nd_null(ENOMEM);
}

ND_EXPORT struct vb_qp *ibv_create_qp(struct vb_pd *pd, struct vb_qp_init_attr *a)
{
	struct vb_qp_init_attr_ex x = { .qp_context = a->qp_context, .send_cq = a->send_cq, .recv_cq = a->recv_cq,
		.srq = a->srq, .cap = a->cap, .qp_type = a->qp_type, .sq_sig_all = a->sq_sig_all, .pd = pd };
	struct vb_qp *qp;

	ND_CALL_PTR("ibv_create_qp", nd_dev_of(pd->context));
	nd_command(pd->context);
	qp = create(nd_ctx_of(pd->context), &x, 0);
	if (qp)
		a->cap = x.cap;
	return qp;
}

struct vb_qp *nd_create_qp_ex(struct vb_context *c, struct vb_qp_init_attr_ex *a)
{
	const uint32_t known = VB_QP_INIT_ATTR_PD | VB_QP_INIT_ATTR_XRCD | VB_QP_INIT_ATTR_CREATE_FLAGS | VB_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const struct nd_profile *p = nd_profile_of(c);
	uint64_t ops = (1 << 13) - 1 - VB_QP_EX_WITH_TSO;
	uint64_t want = a->comp_mask & VB_QP_INIT_ATTR_SEND_OPS_FLAGS ? a->send_ops_flags : 0;

	const uint64_t local = VB_QP_EX_WITH_BIND_MW | VB_QP_EX_WITH_LOCAL_INV;
	struct vb_qp *qp;

	ND_CALL_PTR("ibv_create_qp_ex", nd_dev_of(c));
	nd_command(c);
	if (p->ops)
		ops = p->ops(a->qp_type);
	if ((a->comp_mask & ~known) || !ops || (want & ~ops))
		return nd_null(EOPNOTSUPP);
	qp = create(nd_ctx_of(c), a, want);
	if (qp)
		((struct nd_qp *)qp)->lean = want && (ops & local) && !(want & local);
	return qp;
}

/* Makes another handle on a queue pair of type XRC_RECV. */
struct vb_qp *nd_open_qp(struct vb_context *c, struct vb_qp_open_attr *a)
{
	struct nd_qp *qp, *main;

	ND_CALL_PTR("ibv_open_qp", nd_dev_of(c));
	qp = aligned_alloc(64, (sizeof(*qp) + 63) & ~63UL);
	if (!qp)
		return nd_null(ENOMEM);
	memset(qp, 0, sizeof(*qp));
	nd_lock();
	main = nd_qp_by_num(a->qp_num);
	if (!main || main->qp.qp_base.qp_type != VB_QPT_XRC_RECV || main->domain != ((struct nd_xrcd *)a->xrcd)->domain) {
		nd_unlock();
		free(qp);
		return nd_null(EINVAL);
	}
	qp->main = main;
	qp->xrcd = (struct nd_xrcd *)a->xrcd;
	qp->xrcd->uses++;
	main->opens++;
	nd_live.qp++;
	nd_unlock();
	qp->ctx = nd_ctx_of(c);
	qp->qp.qp_base.context = c;
	qp->qp.qp_base.qp_context = a->qp_context;
	qp->qp.qp_base.qp_type = VB_QPT_XRC_RECV;
	qp->qp.qp_base.qp_num = qp->qp.qp_base.handle = a->qp_num;
	pthread_mutex_init(&qp->qp.qp_base.mutex, NULL);
	pthread_cond_init(&qp->qp.qp_base.cond, NULL);
	return &qp->qp.qp_base;
}

static void retire(struct nd_qp *qp)
{
	nd_past.sends += qp->n_sends;
	nd_past.recvs += qp->n_recvs;
	nd_past.send_wrs += qp->n_send_wrs;
	nd_past.recv_wrs += qp->n_recv_wrs;
	nd_past.doorbells += qp->n_doorbells + qp->n_rdoorbells;
}

/* leave applies the scripted faults to a queue pair's completions when it is destroyed. With
 * nd_mu. */
static bool leave(struct nd_qp *qp)
{
	bool keep = qp->late;

	if (qp->late) {
		qp->late = 0;
		nd_flush_sends(qp);
		nd_flush_recvs(qp);
	}
	if (nd_strikes(NULLDEV_LEFTOVER, NULL) && qp->scq) {
		struct nd_cqe e = { .wr_id = qp->last_wr_id, .qp_num = qp->qp.qp_base.qp_num, .opcode = VB_WC_SEND };

		keep = true;
		nd_cq_push(qp->scq, &e);
	}
	return keep;
}

ND_EXPORT int ibv_destroy_qp(struct vb_qp *q)
{
	struct nd_qp *qp = (struct nd_qp *)q, *main = qp->main ? qp->main : qp;
	bool keep;

	ND_DESTROY("ibv_destroy_qp", nd_dev_of(q->context));
	nd_command(q->context);
	nd_lock();
	if (main->mcasts) {
		nd_unlock();
		return EBUSY;
	}
	if (qp->main) {
		nd_live.qp--;
		qp->xrcd->uses--;
		main->opens--;
		if (main->orphan && !main->opens) {
			unnumber(main);
			nd_unlock();
			release(main);
		} else {
			nd_unlock();
		}
		pthread_mutex_destroy(&q->mutex);
		pthread_cond_destroy(&q->cond);
		free(qp);
		return 0;
	}
	nd_unwait(qp);
	if (qp->opens) { /* lives on for the others; its first handle's memory is freed last */
		qp->orphan = true;
		qp->xrcd->uses--;
		qp->xrcd = NULL;
		nd_live.qp--;
		nd_unlock();
		return 0;
	}
	unnumber(qp);
	keep = leave(qp);
	if (qp->scq)
		nd_cq_clean(qp->scq, qp, keep);
	if (qp->rcq && qp->rcq != qp->scq)
		nd_cq_clean(qp->rcq, qp, keep);
	if (qp->srq && qp->srq->cq)
		nd_cq_clean(qp->srq->cq, qp, keep);
	for (int i = 0; i < ND_MAX_KEYS; i++) {
		struct nd_key *k = nd_key_slot(i);

		if (k && k->qp == qp)
			nd_key_unbind(k);
	}
	uses(qp, -1);
	retire(qp);
	nd_unlock();
	nd_await_acks(&qp->ctx->async, qp, nd_is_qp_event, &q->mutex, &q->cond, &q->events_completed, &qp->async_got);
	release(qp);
	return 0;
}
