/* Messages that are lost, and sent again by the kernel after a while (cm.c, cm_process_send_error and
 * the retries of its MADs; 4.3 s, CMA_CM_RESPONSE_TIMEOUT). */
#include <time.h>
#include "cm.h"

struct cm_late {
	struct cm_id *id; /* valid only if one with this serial is in the list */
	uint64_t serial;
	int kind;
	uint32_t ms;
	bool param;
	struct vb_rdma_conn_param c;
	uint8_t data[CM_PRIVATE_MOST];
};

static bool alive(const struct cm_late *m)
{
	for (struct cm_id *x = cm_ids; x; x = x->next)
		if (x == m->id)
			return x->serial == m->serial;
	return false;
}

static void *again(void *arg)
{
	struct cm_late *m = arg;
	struct timespec t = { .tv_sec = m->ms / 1000, .tv_nsec = m->ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
	pthread_mutex_lock(&cm_mu);
	if (alive(m) && m->kind == NULLDEV_LOST_RTU)
		cm_confirm(m->id);
	else if (alive(m) && m->id->state == CM_ASKED)
		cm_ask(m->id, m->param ? &m->c : NULL);
	pthread_mutex_unlock(&cm_mu);
	free(m);
	return NULL;
}

/* cm_lost reports whether the script loses a message of an identifier, which then comes later. With cm_mu. */
bool cm_lost(int kind, struct cm_id *id, const struct vb_rdma_conn_param *c)
{
	struct cm_late *m;
	pthread_t thread;
	uint32_t ms;

	if (!nulldev_strikes(kind, &ms))
		return false;
	if (!ms)
		return true;
	m = calloc(1, sizeof(*m));
	if (!m)
		abort(); /* as in cm_event_new */
	*m = (struct cm_late){ .id = id, .serial = id->serial, .kind = kind, .ms = ms, .param = c };
	if (c) {
		m->c = *c;
		if (c->private_data_len)
			memcpy(m->data, c->private_data, c->private_data_len);
		m->c.private_data = m->data;
	}
	if (pthread_create(&thread, NULL, again, m))
		abort();
	pthread_detach(thread);
	return true;
}
