/* Event channels, and the side effects of taking an event. */
#include <sys/eventfd.h>
#include <unistd.h>
#include "cm.h"

CM_EXPORT struct vb_rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *ch;

	CM_CALL_("rdma_create_event_channel", NULL, 0, NULL);
	ch = calloc(1, sizeof(*ch));
	if (!ch) {
		errno = ENOMEM;
		return NULL;
	}
	ch->pub.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->pub.fd < 0) {
		free(ch);
		return NULL;
	}
	ch->last = &ch->first;
	nulldev_cm_count(1, 0, 0);
	return &ch->pub;
}

CM_EXPORT void rdma_destroy_event_channel(struct vb_rdma_event_channel *p)
{
	struct cm_channel *ch = (struct cm_channel *)p;

	while (ch->first) {
		struct cm_event *e = ch->first;

		ch->first = e->next;
		free(e);
	}
	close(p->fd);
	free(ch);
	nulldev_cm_count(-1, 0, 0);
}

struct cm_channel *cm_channel_of(struct cm_id *id) { return (struct cm_channel *)id->id.channel; }

struct cm_event *cm_event_new(void)
{
	struct cm_event *e = calloc(1, sizeof(*e));

	if (!e)
		abort(); /* a lost event would be a fault outside of the script */
	return e;
}

static void put(struct cm_channel *ch, struct cm_event *e)
{
	uint64_t one = 1;

	e->next = NULL;
	*ch->last = e;
	ch->last = &e->next;
	if (write(ch->pub.fd, &one, sizeof(one)) != sizeof(one))
		abort(); /* the counter holds 2^64-2 */
}

/* cm_push queues an event; e may bring its parameters. */
void cm_push(struct cm_id *id, int type, int status, struct cm_event *e)
{
	if (!e)
		e = cm_event_new();
	e->id = id;
	if (!e->event.id)
		e->event.id = &id->id;
	e->event.event = type;
	e->event.status = status;
	put(cm_channel_of(id), e);
}

/* cm_forget drops the events of an identifier. It rejects a request that was not taken. */
void cm_forget(struct cm_channel *ch, struct cm_id *id)
{
	for (struct cm_event *e = ch->first; e; e = e->next) {
		if (e->id != id)
			continue;
		e->id = NULL;
		if (e->made) {
			cm_refuse(e->made, CM_REJ_CONSUMER, NULL, 0);
			cm_forget(ch, e->made);
			cm_drop(e->made);
			e->made = NULL;
		}
	}
}

void cm_move_events(struct cm_channel *from, struct cm_channel *to, struct cm_id *id)
{
	for (struct cm_event *e = from->first; e; e = e->next) {
		struct cm_event *moved;

		if (e->id != id)
			continue;
		moved = cm_event_new();
		*moved = *e;
		if (e->event.param.conn.private_data == e->data)
			moved->event.param.conn.private_data = moved->data;
		e->id = NULL; /* it stays as an empty entry, because the eventfd counts it */
		e->made = NULL;
		put(to, moved);
	}
}

/* process does the work of librdmacm on an event before it returns it (cma.c, rdma_get_cm_event).
 * Without cm_mu. false: the event is not returned. */
static bool process(struct cm_event *e)
{
	struct cm_id *id = e->id;

	switch (e->event.event) {
	case VB_RDMA_CM_EVENT_ADDR_RESOLVED:
		pthread_mutex_lock(&cm_mu);
		e->event.status = cm_open_device(id, id->dev);
		pthread_mutex_unlock(&cm_mu);
		if (e->event.status)
			e->event.event = VB_RDMA_CM_EVENT_ADDR_ERROR;
		return true;
	case VB_RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (!id->id.qp)
			return true; /* the caller moves its queue pair, and calls rdma_establish */
		if (cm_respond(id)) {
			e->event.event = VB_RDMA_CM_EVENT_CONNECT_ERROR;
			e->event.status = -1;
			id->connect_error = true;
		} else {
			e->event.event = VB_RDMA_CM_EVENT_ESTABLISHED;
		}
		return true;
	case VB_RDMA_CM_EVENT_REJECTED:
		if (id->connect_error)
			return false;
		cm_qp_err(id);
		return true;
	case VB_RDMA_CM_EVENT_DISCONNECTED:
		return !id->connect_error;
	case VB_RDMA_CM_EVENT_MULTICAST_JOIN:
		if (id->id.qp && !e->mc->send_only) {
			e->event.status = ibv_attach_mcast(id->id.qp, &e->mc->gid, 0);
			if (e->event.status)
				e->event.event = VB_RDMA_CM_EVENT_MULTICAST_ERROR;
			else
				e->mc->attached = true;
		}
		return true;
	default:
		return true;
	}
}

static void completed(struct cm_event *e)
{
	pthread_mutex_lock(&e->id->mu);
	e->id->completed++;
	if (e->mc)
		e->mc->completed++;
	pthread_cond_broadcast(&e->id->cond);
	pthread_mutex_unlock(&e->id->mu);
}

CM_EXPORT int rdma_get_cm_event(struct vb_rdma_event_channel *p, struct vb_rdma_cm_event **out)
{
	struct cm_channel *ch = (struct cm_channel *)p;

	CM_CALL_("rdma_get_cm_event", NULL, 1, ret_ > 0 ? cm_err(ret_) : ret_);
	for (;;) {
		struct cm_event *e;
		uint64_t one;

		if (read(p->fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		pthread_mutex_lock(&cm_mu);
		e = ch->first;
		ch->first = e->next;
		if (!ch->first)
			ch->last = &ch->first;
		if (!e->id) {
			pthread_mutex_unlock(&cm_mu);
			free(e);
			continue;
		}
		e->id->reported++;
		if (e->mc)
			e->mc->reported++;
		if (e->made) { /* from here on it belongs to the caller */
			e->id->backlog++;
			e->made = NULL;
			nulldev_cm_count(0, 1, 0);
		}
		pthread_mutex_unlock(&cm_mu);
		if (!process(e)) {
			completed(e);
			free(e);
			continue;
		}
		nulldev_cm_count(0, 0, 1);
		*out = &e->event;
		return 0;
	}
}

CM_EXPORT int rdma_ack_cm_event(struct vb_rdma_cm_event *ev)
{
	struct cm_event *e = (struct cm_event *)ev;

	if (!ev)
		return cm_err(EINVAL);
	completed(e);
	free(e);
	nulldev_cm_count(0, 0, -1);
	return 0;
}

CM_EXPORT const char *rdma_event_str(vb_enum type)
{
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED",
		"RDMA_CM_EVENT_ROUTE_ERROR", "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE", "RDMA_CM_EVENT_REJECTED",
		"RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
		"RDMA_CM_EVENT_TIMEWAIT_EXIT" };

	return type >= 0 && type < 16 ? names[type] : "UNKNOWN EVENT";
}
