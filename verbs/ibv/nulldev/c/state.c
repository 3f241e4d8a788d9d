/* The lock, late flushes, dead devices, and the counters. */
#include "nd.h"

static pthread_mutex_t nd_mu = PTHREAD_MUTEX_INITIALIZER;
int nd_died;

void nd_lock(void) { pthread_mutex_lock(&nd_mu); }

/* A dead completion queue fails its queue pairs. Their flushes may kill another queue. */
void nd_unlock(void)
{
	while (__atomic_exchange_n(&nd_died, 0, __ATOMIC_ACQ_REL)) {
		for (int i = 0; i < ND_MAX_QP; i++) {
			struct nd_qp *qp = nd_qps[i];

			if (qp && ((qp->scq && qp->scq->dead) || (qp->rcq && qp->rcq->dead)))
				nd_qp_error(qp);
		}
	}
	pthread_mutex_unlock(&nd_mu);
}

/* nd_late_polled releases a delayed flush when its queue was polled often enough. */
void nd_late_polled(struct nd_cq *cq)
{
	nd_lock();
	for (int i = 0; i < ND_MAX_QP; i++) {
		struct nd_qp *qp = nd_qps[i];

		if (!qp || qp->late < 2 || (qp->scq != cq && qp->rcq != cq))
			continue;
		if (--qp->late == 1) {
			qp->late = 0;
			nd_flush_sends(qp);
			nd_flush_recvs(qp);
		}
	}
	nd_unlock();
}

static struct nd_device *by_name(const char *name)
{
	for (int i = 0; i < ND_DEVICES; i++)
		if (!strcmp(nd_devices[i].dev.name, name))
			return &nd_devices[i];
	return NULL;
}

/* After nd_make_fatal no data moves and nothing completes. */
void nd_make_fatal(struct nd_device *d)
{
	if (nd_fatal(d))
		return;
	__atomic_store_n(&d->fatal, true, __ATOMIC_RELEASE);
	for (int i = 0; i < ND_MAX_QP; i++)
		if (nd_qps[i] && nd_qps[i]->ctx->dev == d)
			nd_unwait(nd_qps[i]);
	for (struct nd_ctx *c = d->ctxs; c; c = c->next)
		nd_async(c, c, VB_EVENT_DEVICE_FATAL);
}

ND_EXPORT int nulldev_fatal(const char *name)
{
	struct nd_device *d = by_name(name);

	if (!d)
		return -ENODEV;
	nd_lock();
	nd_make_fatal(d);
	nd_unlock();
	return 0;
}

ND_EXPORT int nulldev_revive(const char *name)
{
	struct nd_device *d = by_name(name);

	if (!d)
		return -ENODEV;
	__atomic_store_n(&d->fatal, false, __ATOMIC_RELEASE);
	return 0;
}

ND_EXPORT int nulldev_port_event(const char *name, int type)
{
	struct nd_device *d = by_name(name);

	if (!d)
		return -ENODEV;
	nd_lock();
	if (type == VB_EVENT_PORT_ERR)
		__atomic_store_n(&d->port_state, VB_PORT_DOWN, __ATOMIC_RELAXED);
	if (type == VB_EVENT_PORT_ACTIVE)
		__atomic_store_n(&d->port_state, VB_PORT_ACTIVE, __ATOMIC_RELAXED);
	for (struct nd_ctx *c = d->ctxs; c; c = c->next)
		nd_async(c, c, type);
	nd_kick();
	nd_unlock();
	return 0;
}

ND_EXPORT int nulldev_spurious_events(void)
{
	int n = 0;

	nd_lock();
	for (struct nd_cq *cq = nd_cqs; cq; cq = cq->next) {
		if (!cq->cq.channel)
			continue;
		nd_evq_push(&((struct nd_channel *)cq->cq.channel)->q, cq, 0);
		n++;
	}
	nd_unlock();
	return n;
}

/* librdmacm counts its objects and events here. */
ND_EXPORT void nulldev_cm_count(int channels, int ids, int unacked)
{
	nd_lock();
	nd_live.cm_channel += channels;
	nd_live.cm_id += ids;
	nd_past.unacked += unacked;
	nd_unlock();
}

ND_EXPORT void nulldev_stats(struct nulldev_stats *s)
{
	nd_lock();
	*s = nd_past;
	s->live = nd_live;
	s->rings = nd_ring_pinned();
	s->td_races = __atomic_load_n(&nd_td_races, __ATOMIC_RELAXED);
	for (int i = 0; i < ND_MAX_QP; i++) {
		struct nd_qp *qp = nd_qps[i];

		if (!qp)
			continue;
		pthread_spin_lock(&qp->sq_lock);
		s->sends += qp->n_sends;
		s->send_wrs += qp->n_send_wrs;
		s->doorbells += qp->n_doorbells;
		pthread_spin_unlock(&qp->sq_lock);
		pthread_spin_lock(&qp->rq_lock);
		s->recvs += qp->n_recvs;
		s->recv_wrs += qp->n_recv_wrs;
		s->doorbells += qp->n_rdoorbells;
		pthread_spin_unlock(&qp->rq_lock);
		pthread_mutex_lock(&qp->qp.qp_base.mutex);
		s->unacked += qp->async_got - qp->qp.qp_base.events_completed;
		pthread_mutex_unlock(&qp->qp.qp_base.mutex);
	}
	for (struct nd_cq *cq = nd_cqs; cq; cq = cq->next) {
		pthread_spin_lock(&cq->lock);
		s->completions += cq->completions;
		s->polls += cq->polls;
		s->empty_polls += cq->empty;
		pthread_spin_unlock(&cq->lock);
		pthread_mutex_lock(&cq->cq.mutex);
		s->unacked += cq->events_got - cq->cq.comp_events_completed;
		s->unacked += cq->async_got - cq->cq.async_events_completed;
		pthread_mutex_unlock(&cq->cq.mutex);
	}
	nd_unlock();
}
