/* Queues of events behind pollable descriptors. */
#include <sys/eventfd.h>
#include <unistd.h>
#include "nd.h"

int nd_evq_init(struct nd_evq *q)
{
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (q->fd < 0)
		return errno;
	pthread_mutex_init(&q->mu, NULL);
	q->first = NULL;
	q->last = &q->first;
	return 0;
}

void nd_evq_end(struct nd_evq *q)
{
	while (q->first) {
		struct nd_event *e = q->first;

		q->first = e->next;
		free(e);
	}
	close(q->fd);
	pthread_mutex_destroy(&q->mu);
}

void nd_evq_push(struct nd_evq *q, void *obj, int type)
{
	struct nd_event *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	if (!e)
		abort(); /* a lost event would be a fault outside of the script */
	e->obj = obj;
	e->type = type;
	pthread_mutex_lock(&q->mu);
	*q->last = e;
	q->last = &e->next;
	pthread_mutex_unlock(&q->mu);
	if (write(q->fd, &one, sizeof(one)) != sizeof(one))
		abort(); /* the counter holds 2^64-2 */
}

int nd_evq_pop(struct nd_evq *q, void **obj, int *type,
	       uint32_t *(*got)(void *obj, int type))
{
	for (;;) {
		struct nd_event *e;
		uint64_t one;
		uint32_t *n;

		if (read(q->fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		pthread_mutex_lock(&q->mu);
		e = q->first;
		q->first = e->next;
		if (!q->first)
			q->last = &q->first;
		*obj = e->obj;
		*type = e->type;
		if (*obj && (n = got(*obj, *type)))
			++*n;
		pthread_mutex_unlock(&q->mu);
		free(e);
		if (*obj)
			return 0;
	}
}

void nd_evq_forget(struct nd_evq *q, void *obj, bool (*mine)(int type))
{
	pthread_mutex_lock(&q->mu);
	for (struct nd_event *e = q->first; e; e = e->next)
		if (e->obj == obj && mine(e->type))
			e->obj = NULL;
	pthread_mutex_unlock(&q->mu);
}

void nd_async(struct nd_ctx *ctx, void *obj, int type)
{
	nd_evq_push(&ctx->async, obj, type);
}

static bool is_cq(int type) { return type == VB_EVENT_CQ_ERR; }
static bool is_srq(int type) { return type == VB_EVENT_SRQ_ERR || type == VB_EVENT_SRQ_LIMIT_REACHED; }
static bool is_qp(int type)
{
	return (type >= VB_EVENT_QP_FATAL && type <= VB_EVENT_PATH_MIG_ERR) ||
	       type == VB_EVENT_QP_LAST_WQE_REACHED;
}

static uint32_t *async_got(void *obj, int type)
{
	if (is_cq(type))
		return &((struct nd_cq *)obj)->async_got;
	if (is_qp(type))
		return &((struct nd_qp *)obj)->async_got;
	if (is_srq(type))
		return &((struct nd_srq *)obj)->async_got;
	return NULL;
}

ND_EXPORT int ibv_get_async_event(struct vb_context *c, struct vb_async_event *ev)
{
	struct nd_ctx *ctx = nd_ctx_of(c);
	void *obj;
	int type;

	ND_CALL_("ibv_get_async_event", NULL, true, -1);
	if (nd_evq_pop(&ctx->async, &obj, &type, async_got))
		return -1;
	memset(ev, 0, sizeof(*ev));
	ev->event_type = type;
	if (is_cq(type))
		ev->element.cq = obj;
	else if (is_qp(type))
		ev->element.qp = obj;
	else if (is_srq(type))
		ev->element.srq = obj;
	else
		ev->element.port_num = nd_port_of(ctx);
	return 0;
}

static void ack(pthread_mutex_t *mu, pthread_cond_t *cond, uint32_t *n)
{
	pthread_mutex_lock(mu);
	++*n;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mu);
}

ND_EXPORT void ibv_ack_async_event(struct vb_async_event *ev)
{
	if (is_cq(ev->event_type))
		ack(&ev->element.cq->mutex, &ev->element.cq->cond, &ev->element.cq->async_events_completed);
	else if (is_qp(ev->event_type))
		ack(&ev->element.qp->mutex, &ev->element.qp->cond, &ev->element.qp->events_completed);
	else if (is_srq(ev->event_type))
		ack(&ev->element.srq->mutex, &ev->element.srq->cond, &ev->element.srq->events_completed);
}

/* nd_await_acks blocks until all events taken are acknowledged, as the destroying calls of
 * libibverbs do. Without nd_mu. */
void nd_await_acks(struct nd_evq *q, void *obj, bool (*mine)(int type), pthread_mutex_t *mu,
		   pthread_cond_t *cond, uint32_t *acked, uint32_t *got)
{
	uint32_t n;

	nd_evq_forget(q, obj, mine);
	pthread_mutex_lock(&q->mu);
	n = *got;
	pthread_mutex_unlock(&q->mu);
	pthread_mutex_lock(mu);
	while (*acked != n)
		pthread_cond_wait(cond, mu);
	pthread_mutex_unlock(mu);
}

bool nd_is_cq_event(int type) { return is_cq(type); }
bool nd_is_qp_event(int type) { return is_qp(type); }
bool nd_is_srq_event(int type) { return is_srq(type); }
