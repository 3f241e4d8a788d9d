/* Completion queues and their channels. */
#define _DEFAULT_SOURCE
#include <unistd.h>
#include "nd.h"

struct nd_cq *nd_cqs; /* all of them; under nd_mu */

ND_EXPORT struct vb_comp_channel *ibv_create_comp_channel(struct vb_context *c)
{
	struct nd_channel *ch;
	int err;

	ND_CALL_PTR("ibv_create_comp_channel", nd_dev_of(c));
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return nd_null(ENOMEM);
	err = nd_evq_init(&ch->q);
	if (err) {
		free(ch);
		return nd_null(err);
	}
	ch->ch.context = c;
	ch->ch.fd = ch->q.fd;
	nd_lock();
	nd_live.channel++;
	nd_unlock();
	return &ch->ch;
}

ND_EXPORT int ibv_destroy_comp_channel(struct vb_comp_channel *p)
{
	struct nd_channel *ch = (struct nd_channel *)p;

	ND_DESTROY("ibv_destroy_comp_channel", nd_dev_of(p->context));
	nd_lock();
	if (p->refcnt) {
		nd_unlock();
		return EBUSY;
	}
	nd_live.channel--;
	nd_unlock();
	nd_evq_end(&ch->q);
	free(ch);
	return 0;
}

static uint32_t round_up(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* granted returns the number of entries that a request for cqe is granted. */
static int granted(const struct nd_profile *p, int cqe)
{
	return p->cq_rounded ? (int)round_up(cqe + 1) - 1 : cqe;
}

struct nd_cq *nd_cq_make(struct vb_context *c, int cqe, void *user, struct vb_comp_channel *ch, int vector)
{
	struct nd_cq *cq;

	if (cqe < 1 || cqe > ND_MAX_CQE || vector < 0 || vector >= c->num_comp_vectors)
		return nd_null(EINVAL);
	cqe = granted(nd_ctx_of(c)->profile, cqe);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return nd_null(ENOMEM);
	cq->size = cqe;
	cq->mask = round_up(cqe) - 1;
	if (!nd_ring_pin(nd_cq_ring(cq->mask))) {
		free(cq);
		return nd_null(ENOMEM);
	}
	cq->ring = aligned_alloc(64, sizeof(*cq->ring) * ((size_t)cq->mask + 1));
	if (!cq->ring) {
		nd_ring_unpin(nd_cq_ring(cq->mask));
		free(cq);
		return nd_null(ENOMEM);
	}
	memset(cq->ring, 0, sizeof(*cq->ring) * ((size_t)cq->mask + 1)); /* touch the pages before a measurement */
	cq->ctx = nd_ctx_of(c);
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	cq->cq.context = c;
	cq->cq.channel = ch;
	cq->cq.cq_context = user;
	cq->cq.cqe = cqe;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	nd_lock();
	if (ch)
		ch->refcnt++;
	cq->next = nd_cqs;
	nd_cqs = cq;
	nd_live.cq++;
	cq->cq.handle = nd_live.cq;
	nd_unlock();
	return cq;
}

ND_EXPORT struct vb_cq *ibv_create_cq(struct vb_context *c, int cqe, void *user, struct vb_comp_channel *ch, int vector)
{
	ND_CALL_PTR("ibv_create_cq", nd_dev_of(c));
	nd_command(c);
	return (struct vb_cq *)nd_cq_make(c, cqe, user, ch, vector);
}

static bool any(int type) { (void)type; return true; }

ND_EXPORT int ibv_destroy_cq(struct vb_cq *p)
{
	struct nd_cq *cq = (struct nd_cq *)p;
	struct nd_channel *ch = (struct nd_channel *)p->channel;

	ND_DESTROY("ibv_destroy_cq", nd_dev_of(p->context));
	nd_command(p->context);
	nd_lock();
	if (cq->uses) {
		nd_unlock();
		return EBUSY;
	}
	for (struct nd_cq **q = &nd_cqs; *q; q = &(*q)->next)
		if (*q == cq) {
			*q = cq->next;
			break;
		}
	nd_live.cq--;
	nd_past.completions += cq->completions;
	nd_past.polls += cq->polls;
	nd_past.empty_polls += cq->empty;
	nd_unlock();
	if (ch)
		nd_await_acks(&ch->q, cq, any, &p->mutex, &p->cond, &p->comp_events_completed, &cq->events_got);
	nd_await_acks(&cq->ctx->async, cq, nd_is_cq_event, &p->mutex, &p->cond, &p->async_events_completed, &cq->async_got);
	if (ch) {
		nd_lock();
		ch->ch.refcnt--;
		nd_unlock();
	}
	pthread_spin_destroy(&cq->lock);
	pthread_mutex_destroy(&p->mutex);
	pthread_cond_destroy(&p->cond);
	nd_ring_unpin(nd_cq_ring(cq->mask));
	free(cq->ring);
	free(cq);
	return 0;
}

ND_EXPORT int ibv_resize_cq(struct vb_cq *p, int cqe)
{
	struct nd_cq *cq = (struct nd_cq *)p;
	const struct nd_profile *profile = nd_ctx_of(p->context)->profile;
	struct nd_cqe *ring;
	uint32_t mask, n;

	if (profile->no_resize)
		return EOPNOTSUPP;
	ND_CALL("ibv_resize_cq", nd_dev_of(p->context));
	nd_command(p->context);
	if (cqe < 1 || cqe > ND_MAX_CQE)
		return EINVAL;
	cqe = granted(profile, cqe);
	mask = round_up(cqe) - 1;
	if (!nd_ring_pin(nd_cq_ring(mask))) /* beside the old one */
		return ENOMEM;
	ring = aligned_alloc(64, sizeof(*ring) * ((size_t)mask + 1));
	if (!ring) {
		nd_ring_unpin(nd_cq_ring(mask));
		return ENOMEM;
	}
	memset(ring, 0, sizeof(*ring) * ((size_t)mask + 1));
	nd_lock();
	pthread_spin_lock(&cq->lock);
	if (profile->resize_us)
		usleep(profile->resize_us);
	n = cq->tail - cq->head;
	if (n > (uint32_t)cqe) { /* rxe_cq_chk_attr: the queued completions must fit */
		pthread_spin_unlock(&cq->lock);
		nd_unlock();
		nd_ring_unpin(nd_cq_ring(mask));
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < n; i++)
		ring[i] = cq->ring[(cq->head + i) & cq->mask];
	struct nd_cqe *old = cq->ring;
	cq->ring = ring;
	nd_ring_unpin(nd_cq_ring(cq->mask));
	cq->head = 0;
	cq->tail = n;
	cq->mask = mask;
	cq->size = cq->cq.cqe = cqe;
	pthread_spin_unlock(&cq->lock);
	nd_unlock();
	free(old);
	return 0;
}

/* nd_cq_event raises an event, unless the script drops it. */
void nd_cq_event(struct nd_cq *cq)
{
	if (!cq->cq.channel)
		return;
	if (nd_strikes(NULLDEV_LOST, NULL)) {
		__atomic_fetch_add(&nd_past.lost_events, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_fetch_add(&nd_past.events, 1, __ATOMIC_RELAXED);
	nd_evq_push(&((struct nd_channel *)cq->cq.channel)->q, cq, 0);
}

static bool place(struct nd_cq *cq, const struct nd_cqe *e)
{
	if (cq->tail - cq->head >= cq->size)
		return false;
	cq->ring[cq->tail++ & cq->mask] = *e;
	cq->completions++;
	return true;
}

/* nd_cq_push writes a completion. A queue without room is dead, and nd_unlock fails its queue
 * pairs. In instant mode the caller holds a queue's lock and not nd_mu; it locks and unlocks
 * nd_mu afterwards if the queue died. */
void nd_cq_push(struct nd_cq *cq, const struct nd_cqe *e)
{
	bool died = false, fire = false;

	pthread_spin_lock(&cq->lock);
	if (cq->dead) {
		pthread_spin_unlock(&cq->lock);
		return;
	}
	if (__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED)) {
		if (nd_strikes(NULLDEV_MISSING, NULL)) {
			pthread_spin_unlock(&cq->lock);
			return;
		}
		if (nd_strikes(NULLDEV_STALE, NULL) && cq->last.qp_num) {
			struct nd_cqe stale = cq->last;

			stale.qp = NULL; /* it frees no slot a second time */
			stale.srq = NULL;
			place(cq, &stale);
		}
		if (nd_strikes(NULLDEV_OVERRUN, NULL))
			died = true;
		cq->last = *e;
	}
	if (died || !place(cq, e)) {
		cq->dead = died = true;
		__atomic_store_n(&nd_died, 1, __ATOMIC_RELEASE);
	} else if (cq->armed == ND_ARM_ANY || (cq->armed == ND_ARM_SOLICITED && (e->solicited || e->status))) {
		cq->armed = ND_ARM_NONE;
		fire = true;
	}
	pthread_spin_unlock(&cq->lock);
	if (died)
		nd_async(cq->ctx, cq, VB_EVENT_CQ_ERR);
	if (fire && e->status == VB_WC_WR_FLUSH_ERR && nd_strikes(NULLDEV_QUIET_FLUSH, NULL))
		fire = false;
	if (fire || died)
		nd_cq_event(cq);
}

/* nd_cq_clean removes the completions of a queue pair, as destroying it does (mlx5_cq_clean);
 * keep leaves them, without an owner. */
void nd_cq_clean(struct nd_cq *cq, struct nd_qp *qp, bool keep)
{
	uint32_t to;

	pthread_spin_lock(&cq->lock);
	to = cq->head;
	for (uint32_t i = cq->head; i != cq->tail; i++) {
		struct nd_cqe *e = &cq->ring[i & cq->mask];

		if (e->qp == qp && !keep)
			continue;
		if (e->qp == qp)
			e->qp = NULL;
		cq->ring[to++ & cq->mask] = *e;
	}
	cq->tail = to;
	if (cq->last.qp == qp)
		cq->last.qp = NULL;
	pthread_spin_unlock(&cq->lock);
}

void nd_cq_disown(struct nd_cq *cq, const struct nd_srq *srq)
{
	pthread_spin_lock(&cq->lock);
	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (cq->ring[i & cq->mask].srq == srq)
			cq->ring[i & cq->mask].srq = NULL;
	if (cq->last.srq == srq)
		cq->last.srq = NULL;
	pthread_spin_unlock(&cq->lock);
}

/* nd_cq_take takes one completion, and frees its slots. With the lock. */
bool nd_cq_take(struct nd_cq *cq, struct nd_cqe *e)
{
	if (cq->head == cq->tail)
		return false;
	*e = cq->ring[cq->head++ & cq->mask];
	if (e->recv && e->srq)
		__atomic_fetch_add(&e->srq->rq.retired, e->retire, __ATOMIC_RELEASE);
	else if (e->qp)
		__atomic_fetch_add(e->recv ? &e->qp->rq.retired : &e->qp->sq_retired, e->retire, __ATOMIC_RELEASE);
	return true;
}

int nd_poll_cq(struct vb_cq *p, int n, struct vb_wc *wc)
{
	struct nd_cq *cq = (struct nd_cq *)p;
	struct nd_cqe e;
	int i, ret;

	if (__builtin_expect(__atomic_load_n(&nd_scripted, __ATOMIC_RELAXED), 0)) {
		static struct nd_site site = { .name = "ibv_poll_cq" };

		if (nd_called(&site, cq->ctx->dev, false, &ret))
			return ret > 0 ? -ret : ret;
		nd_late_polled(cq);
	}
	if (nd_fatal(cq->ctx->dev))
		return -EIO;
	pthread_spin_lock(&cq->lock);
	cq->polls++;
	for (i = 0; i < n && nd_cq_take(cq, &e); i++) {
		wc[i] = (struct vb_wc){ .wr_id = e.wr_id, .status = e.status, .opcode = e.opcode,
			.vendor_err = e.vendor_err, .byte_len = e.byte_len, .imm_data = e.imm,
			.qp_num = e.qp_num, .src_qp = e.src_qp, .wc_flags = e.wc_flags,
			.slid = e.slid, .sl = e.sl, .dlid_path_bits = e.path_bits };
	}
	if (!i) {
		cq->empty++;
		if (cq->dead)
			i = -EIO;
	}
	pthread_spin_unlock(&cq->lock);
	return i;
}

int nd_req_notify_cq(struct vb_cq *p, int solicited)
{
	struct nd_cq *cq = (struct nd_cq *)p;
	int want = solicited ? ND_ARM_SOLICITED : ND_ARM_ANY;

	ND_CALL("ibv_req_notify_cq", cq->ctx->dev);
	pthread_spin_lock(&cq->lock);
	if (cq->armed < want)
		cq->armed = want; /* solicited does not weaken any (rxe_req_notify_cq) */
	pthread_spin_unlock(&cq->lock);
	return 0;
}

static uint32_t *comp_got(void *obj, int type)
{
	(void)type;
	return &((struct nd_cq *)obj)->events_got;
}

ND_EXPORT int ibv_get_cq_event(struct vb_comp_channel *p, struct vb_cq **cq, void **user)
{
	void *obj;
	int type;

	ND_CALL_("ibv_get_cq_event", NULL, true, -1);
	if (nd_evq_pop(&((struct nd_channel *)p)->q, &obj, &type, comp_got))
		return -1;
	*cq = obj;
	*user = (*cq)->cq_context;
	return 0;
}

ND_EXPORT void ibv_ack_cq_events(struct vb_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
