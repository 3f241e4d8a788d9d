/* Shared receive queues. */
#include "nd.h"

static struct nd_srq *srqs[ND_MAX_SRQ]; /* under nd_mu; slot 0 is not used */

struct nd_srq *nd_srq_by_num(uint32_t num) { return num < ND_MAX_SRQ ? srqs[num] : NULL; }

static struct vb_srq *make(struct nd_ctx *ctx, struct vb_srq_init_attr_ex *a, bool xrc)
{
	struct nd_srq *srq;
	struct vb_srq *base;

	if (!a->pd || !a->attr.max_wr || a->attr.max_wr > ND_MAX_QP_WR || a->attr.max_sge > ND_MAX_SGE ||
	    a->attr.srq_limit > a->attr.max_wr || (xrc && (!a->xrcd || !a->cq)))
		return nd_null(EINVAL);
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return nd_null(ENOMEM);
	srq->pinned = nd_rq_ring(a->attr.max_wr + 1, a->attr.max_sge + 1); /* each links to the next */
	if (!nd_ring_pin(srq->pinned)) {
		free(srq);
		return nd_null(ENOMEM);
	}
	if (nd_rq_init(&srq->rq, a->attr.max_wr, a->attr.max_sge)) {
		nd_ring_unpin(srq->pinned);
		nd_rq_end(&srq->rq);
		free(srq);
		return nd_null(ENOMEM);
	}
	srq->ctx = ctx;
	srq->limit = a->attr.srq_limit;
	base = &srq->srq;
	base->context = &ctx->v.context;
	base->srq_context = a->srq_context;
	base->pd = a->pd;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	nd_lock();
	for (uint32_t i = 1; xrc && i < ND_MAX_SRQ && !srq->num; i++)
		if (!srqs[i]) {
			srqs[i] = srq;
			srq->num = i;
			srq->xrcd = (struct nd_xrcd *)a->xrcd;
			srq->cq = (struct nd_cq *)a->cq;
			srq->xrcd->uses++;
			srq->cq->uses++;
		}
	((struct nd_pd *)a->pd)->uses++;
	nd_live.srq++;
	base->handle = nd_live.srq;
	nd_unlock();
	return base;
}

ND_EXPORT struct vb_srq *ibv_create_srq(struct vb_pd *pd, struct vb_srq_init_attr *a)
{
	struct vb_srq_init_attr_ex x = { .srq_context = a->srq_context, .attr = a->attr, .pd = pd };

	ND_CALL_PTR("ibv_create_srq", nd_dev_of(pd->context));
	nd_command(pd->context);
	return make(nd_ctx_of(pd->context), &x, false);
}

struct vb_srq *nd_create_srq_ex(struct vb_context *c, struct vb_srq_init_attr_ex *a)
{
	bool xrc = (a->comp_mask & VB_SRQ_INIT_ATTR_TYPE) && a->srq_type == VB_SRQT_XRC;

	ND_CALL_PTR("ibv_create_srq_ex", nd_dev_of(c));
	nd_command(c);
	if ((a->comp_mask & VB_SRQ_INIT_ATTR_TYPE) && a->srq_type != VB_SRQT_BASIC && !xrc)
		return nd_null(EOPNOTSUPP);
	return make(nd_ctx_of(c), a, xrc);
}

int nd_get_srq_num(struct vb_srq *s, uint32_t *num)
{
	ND_CALL("ibv_get_srq_num", nd_dev_of(s->context));
	if (!((struct nd_srq *)s)->num)
		return EINVAL;
	*num = ((struct nd_srq *)s)->num;
	return 0;
}

/* resize changes the size of the queue and keeps the posted receives. */
static int resize(struct nd_srq *srq, uint32_t wrs)
{
	struct nd_rq rq = { 0 };
	uint32_t posted = srq->rq.tail - __atomic_load_n(&srq->rq.retired, __ATOMIC_ACQUIRE);
	uint32_t ahead = srq->rq.head - srq->rq.retired;

	if (!wrs || wrs > ND_MAX_QP_WR || posted > wrs || srq->limit > wrs)
		return EINVAL;
	if (nd_rq_init(&rq, wrs, srq->rq.max_sge)) {
		nd_rq_end(&rq);
		return ENOMEM;
	}
	/* Receives that are used and not polled hold their slots: they stay counted. */
	rq.retired = 0;
	rq.head = rq.tail = ahead;
	for (uint32_t i = srq->rq.head; i != srq->rq.tail; i++) {
		struct nd_recv *r = &srq->rq.ring[i & srq->rq.mask], *to = &rq.ring[rq.tail++ & rq.mask];

		to->wr_id = r->wr_id;
		to->num_sge = r->num_sge;
		memcpy(to->sge, r->sge, r->num_sge * sizeof(*r->sge));
	}
	nd_rq_end(&srq->rq);
	srq->rq = rq;
	return 0;
}

ND_EXPORT int ibv_modify_srq(struct vb_srq *s, struct vb_srq_attr *a, int mask)
{
	struct nd_srq *srq = (struct nd_srq *)s;
	int err = 0;

	ND_CALL("ibv_modify_srq", nd_dev_of(s->context));
	if (mask & ~(VB_SRQ_MAX_WR | VB_SRQ_LIMIT))
		return EINVAL;
	nd_lock();
	if (mask & VB_SRQ_MAX_WR)
		err = resize(srq, a->max_wr);
	if (!err && (mask & VB_SRQ_LIMIT)) {
		if (a->srq_limit > srq->rq.size)
			err = EINVAL;
		else
			srq->limit = a->srq_limit;
	}
	nd_unlock();
	return err;
}

ND_EXPORT int ibv_query_srq(struct vb_srq *s, struct vb_srq_attr *a)
{
	struct nd_srq *srq = (struct nd_srq *)s;

	ND_CALL("ibv_query_srq", nd_dev_of(s->context));
	nd_lock();
	*a = (struct vb_srq_attr){ .max_wr = srq->rq.size, .max_sge = srq->rq.max_sge, .srq_limit = srq->limit };
	nd_unlock();
	return 0;
}

ND_EXPORT int ibv_destroy_srq(struct vb_srq *s)
{
	struct nd_srq *srq = (struct nd_srq *)s;

	ND_DESTROY("ibv_destroy_srq", nd_dev_of(s->context));
	nd_lock();
	if (srq->uses) {
		nd_unlock();
		return EBUSY;
	}
	if (srq->num) {
		srqs[srq->num] = NULL;
		srq->xrcd->uses--;
		srq->cq->uses--;
	}
	for (struct nd_cq *cq = nd_cqs; cq; cq = cq->next)
		nd_cq_disown(cq, srq);
	((struct nd_pd *)s->pd)->uses--;
	nd_live.srq--;
	nd_unlock();
	nd_await_acks(&srq->ctx->async, srq, nd_is_srq_event, &s->mutex, &s->cond, &s->events_completed, &srq->async_got);
	pthread_mutex_destroy(&s->mutex);
	pthread_cond_destroy(&s->cond);
	nd_ring_unpin(srq->pinned);
	nd_rq_end(&srq->rq);
	free(srq);
	return 0;
}
