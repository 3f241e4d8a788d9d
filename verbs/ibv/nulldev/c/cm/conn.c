/* Connections: connect, accept, reject, disconnect. */
#include "cm.h"

static uint32_t next_psn = 0x5eed;

static uint32_t new_psn(void) { return (next_psn = next_psn * 1103515245 + 12345) >> 8 & 0xffffff; }

static uint8_t least(uint8_t asked) { return asked == CM_MAX_DEPTH || asked > CM_DEVICE_DEPTH ? CM_DEVICE_DEPTH : asked; }

/* told makes the event of a message with private data, padded to the size of the message. */
static struct cm_event *told(const void *data, size_t len, size_t size)
{
	struct cm_event *e = cm_event_new();

	if (len)
		memcpy(e->data, data, len);
	e->event.param.conn.private_data = e->data;
	e->event.param.conn.private_data_len = size;
	return e;
}

CM_EXPORT int rdma_listen(struct vb_rdma_cm_id *p, int backlog)
{
	static struct sockaddr_in any = { .sin_family = AF_INET };
	struct cm_id *id = (struct cm_id *)p;
	int err = 0;

	CM_CALL("rdma_listen", p->verbs);
	if (id->state == CM_IDLE && rdma_bind_addr(p, (struct sockaddr *)&any))
		return -1;
	pthread_mutex_lock(&cm_mu);
	if (id->state != CM_BOUND) {
		err = EINVAL;
	} else if (id->reuse && (id->reuse = false, cm_taken(id, &id->at, id->bound_any, id->port))) {
		id->reuse = true; /* a listener shares with nobody (cma.c, rdma_listen) */
		err = EADDRINUSE;
	} else {
		id->state = CM_LISTEN;
		id->backlog = backlog > 0 && backlog < CM_BACKLOG ? backlog : CM_BACKLOG;
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

static bool at(const struct cm_id *l, const union vb_gid *ip) { return l->bound_any || !memcmp(&l->at, ip, sizeof(*ip)); }

static struct cm_id *listener(const struct cm_id *asks)
{
	for (struct cm_id *x = cm_ids; x; x = x->next)
		if (x->state == CM_LISTEN && x->port == asks->peer_port && x->id.ps == asks->id.ps && at(x, &asks->peer_at))
			return x;
	return NULL;
}

/* asks_with returns the size of the private data of a request to or from an identifier. */
static size_t asks_with(const struct cm_id *id)
{
	return (cm_is_ud(id) ? CM_PRIVATE_SIDR_REQ : CM_PRIVATE_REQ) + (id->ib ? CM_HEADER : 0);
}

/* timeout_of returns the code of an ACK timeout on a path to a device with a delay (cm.c, cm_ack_timeout). */
static uint8_t timeout_of(uint8_t delay, uint8_t life)
{
	uint8_t code = life + 1;

	code = code >= delay ? code + (delay >= code - 1) : delay + (code >= delay - 1);
	return code < 31 ? code : 31;
}

/* fits reports whether a listener is for the requests of an identifier (cma.c, cma_ib_check_req_qp_type). */
static bool fits(const struct cm_id *asks, const struct cm_id *l)
{
	return l->ib == asks->ib && l->id.qp_type == (asks->id.qp_type == VB_QPT_XRC_SEND ? VB_QPT_XRC_RECV : asks->id.qp_type);
}

/* deliver makes a request from the parameters of connect. */
static int deliver(struct cm_id *id, struct cm_id *l, const struct vb_rdma_conn_param *c)
{
	bool ud = cm_is_ud(id);
	struct cm_event *e = told(c ? c->private_data : NULL, c ? c->private_data_len : 0, asks_with(l));
	struct cm_id *made = cm_make(l->id.channel, l->id.context, l->id.ps, l->id.qp_type);
	struct vb_rdma_conn_param *p = &e->event.param.conn;

	if (!made) {
		free(e);
		return ENOMEM;
	}
	made->state = CM_REQUEST;
	made->accepted = true;
	made->ib = l->ib;
	made->dev = id->peer_dev;
	made->at = id->peer_at;
	made->peer_at = id->at;
	made->six = id->six;
	made->port = l->port;
	made->peer_port = id->port;
	cm_set_addrs(made, id->dev);
	cm_open_device(made, made->dev);
	made->peer = id;
	/* The request asks for the timeout of the path to this side, whose device has the delay (cm.c, cm_format_req). */
	made->path_life = id->path_life;
	made->cm_timeout = timeout_of(nulldev_ack_delay(id->id.verbs), id->path_life);
	/* It brings those of its path (cm_format_paths_from_req). */
	made->path_tos = nulldev_tos_unsent(id->id.verbs) ? l->tos : id->path_tos;
	made->path_sl = id->path_sl;
	made->remote_ece = id->local_ece;
	id->peer = made;
	made->psn = new_psn();
	made->remote_psn = id->psn;
	made->remote_qpn = id->qpn;
	made->retry = c ? c->retry_count & 7 : 7;
	made->rnr_retry = c ? c->rnr_retry_count & 7 : 7;
	/* The other side serves the requests that this side has outstanding. */
	made->responder = id->initiator;
	made->initiator = id->responder;
	if (!ud) {
		p->responder_resources = made->responder;
		p->initiator_depth = made->initiator;
		p->flow_control = c ? c->flow_control : 0;
		p->retry_count = made->retry;
		p->rnr_retry_count = made->rnr_retry;
		p->srq = id->srq;
		p->qp_num = id->qpn;
	}
	e->made = made;
	e->event.id = &made->id;
	e->event.listen_id = &l->id;
	l->backlog--;
	cm_push(l, VB_RDMA_CM_EVENT_CONNECT_REQUEST, 0, e);
	return 0;
}

int cm_ask(struct cm_id *id, const struct vb_rdma_conn_param *c)
{
	struct cm_id *l = listener(id);

	if (!cm_is_ud(id) && nulldev_stale(id->qpn))
		cm_push(id, VB_RDMA_CM_EVENT_REJECTED, CM_REJ_STALE, told(NULL, 0, CM_PRIVATE_REJ));
	else if (l && l->backlog > 0 && fits(id, l))
		return deliver(id, l, c);
	else if (cm_is_ud(id))
		cm_push(id, VB_RDMA_CM_EVENT_UNREACHABLE, l ? CM_SIDR_REJECT : CM_SIDR_UNSUPPORTED, NULL);
	else
		cm_push(id, VB_RDMA_CM_EVENT_REJECTED, l ? CM_REJ_CONSUMER : CM_REJ_SERVICE, told(NULL, 0, CM_PRIVATE_REJ));
	id->state = CM_OVER;
	return 0;
}

CM_EXPORT int rdma_connect(struct vb_rdma_cm_id *p, struct vb_rdma_conn_param *c)
{
	struct cm_id *id = (struct cm_id *)p;
	bool ud = cm_is_ud(id);
	int err;

	CM_CALL("rdma_connect", p->verbs);
	if ((!ud && !p->qp && !c) || (c && c->private_data_len > asks_with(id)))
		return cm_err(EINVAL);
	if (c && !ud && ((c->responder_resources != CM_MAX_DEPTH && c->responder_resources > CM_DEVICE_DEPTH) ||
			 (c->initiator_depth != CM_MAX_DEPTH && c->initiator_depth > CM_DEVICE_DEPTH)))
		return cm_err(EINVAL);
	pthread_mutex_lock(&cm_mu);
	if (id->state != CM_ROUTE) {
		pthread_mutex_unlock(&cm_mu);
		return cm_err(EINVAL);
	}
	id->initiator = least(c ? c->initiator_depth : CM_MAX_DEPTH);
	id->responder = least(c ? c->responder_resources : CM_MAX_DEPTH);
	id->qpn = p->qp ? p->qp->qp_num : c ? c->qp_num : 0;
	id->srq = p->qp ? p->qp->srq != NULL : c && c->srq;
	id->retry = c ? c->retry_count & 7 : 7;
	id->psn = new_psn();
	if (nulldev_tos_unsent(p->verbs))
		id->path_tos = id->tos; /* cma_connect_iw */
	id->state = CM_ASKED;
	err = cm_lost(NULLDEV_LOST_REQ, id, c) ? 0 : cm_ask(id, c);
	if (err)
		id->state = CM_ROUTE;
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

/* answer notifies the connecting side that it was accepted. */
static void answer(struct cm_id *id, const struct vb_rdma_conn_param *c)
{
	bool ud = cm_is_ud(id);
	struct cm_event *e = told(c ? c->private_data : NULL, c ? c->private_data_len : 0, ud ? CM_PRIVATE_SIDR_REP : CM_PRIVATE_REP);
	struct cm_id *a = id->peer;

	if (!a) { /* the connecting side is closed: its rejection is in transit */
		free(e);
		return;
	}
	if (ud) {
		struct vb_rdma_ud_param u = { .private_data = e->data, .private_data_len = CM_PRIVATE_SIDR_REP, .qp_num = id->qpn, .qkey = CM_QKEY };

		cm_way(a, id->dev, &u.ah_attr); /* cma_sidr_rep_handler */
		e->event.param.ud = u;
		a->state = CM_UP;
		cm_push(a, VB_RDMA_CM_EVENT_ESTABLISHED, 0, e);
		return;
	}
	a->remote_qpn = id->qpn;
	a->remote_psn = id->psn;
	a->remote_ece.vendor_id = id->remote_ece.vendor_id; /* cma.c, ucma_copy_ece_param_to_kern_rep */
	a->remote_ece.options = id->local_ece.options;
	a->rnr_retry = id->rnr_told;
	a->cm_timeout = timeout_of(nulldev_ack_delay(id->id.verbs), a->path_life); /* cm_rep_handler: the target's delay */
	a->responder = id->initiator;
	a->initiator = id->responder;
	e->event.param.conn.responder_resources = a->responder;
	e->event.param.conn.initiator_depth = a->initiator;
	e->event.param.conn.flow_control = c ? c->flow_control : 0;
	e->event.param.conn.rnr_retry_count = a->rnr_retry;
	e->event.param.conn.srq = id->srq;
	e->event.param.conn.qp_num = id->qpn;
	cm_push(a, VB_RDMA_CM_EVENT_CONNECT_RESPONSE, 0, e);
}

CM_EXPORT int rdma_accept(struct vb_rdma_cm_id *p, struct vb_rdma_conn_param *c)
{
	struct cm_id *id = (struct cm_id *)p;
	bool ud = cm_is_ud(id);
	int err;

	CM_CALL("rdma_accept", p->verbs);
	if ((!p->qp && !c) || (id->state != CM_REQUEST))
		return cm_err(EINVAL);
	id->initiator = c && c->initiator_depth != CM_MAX_DEPTH ? c->initiator_depth : least(id->initiator);
	id->responder = c && c->responder_resources != CM_MAX_DEPTH ? c->responder_resources : least(id->responder);
	id->rnr_told = c ? c->rnr_retry_count & 7 : 7;
	id->qpn = p->qp ? p->qp->qp_num : c->qp_num;
	id->srq = p->qp ? p->qp->srq != NULL : c->srq;
	if (!ud)
		nulldev_accepts(p->verbs, id->qpn);
	if (!ud && ((err = cm_qp_rtr(id)) || (err = cm_qp_rts(id))))
		return cm_err(err);
	pthread_mutex_lock(&cm_mu);
	if (c && c->private_data_len > (ud ? CM_PRIVATE_SIDR_REP : CM_PRIVATE_REP)) {
		pthread_mutex_unlock(&cm_mu);
		cm_qp_err(id); /* as librdmacm, which learns of it from the kernel only now */
		return cm_err(EINVAL);
	}
	id->state = ud ? CM_UP : CM_ANSWERED;
	answer(id, c);
	pthread_mutex_unlock(&cm_mu);
	return 0;
}

void cm_confirm(struct cm_id *id)
{
	struct cm_id *p = id->peer;

	if (!p || p->state != CM_ANSWERED) /* rdma_notify was before it, or the connection has ended */
		return;
	p->state = CM_UP;
	cm_push(p, VB_RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
}

/* cm_respond is the active side's reaction to an acceptance (cma.c, ucma_process_conn_resp): it
 * moves its queue pair, if it has one, and sends the RTU. */
int cm_respond(struct cm_id *id)
{
	int err = cm_qp_rtr(id);

	if (!err)
		err = cm_qp_rts(id);
	if (err) {
		cm_qp_err(id);
		return cm_err(err);
	}
	pthread_mutex_lock(&cm_mu);
	if (id->state == CM_ASKED && id->peer && (id->peer->state == CM_ANSWERED || id->peer->state == CM_UP)) {
		id->state = CM_UP;
		if (!cm_lost(NULLDEV_LOST_RTU, id, NULL))
			cm_confirm(id);
	} else {
		err = EINVAL;
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

CM_EXPORT int rdma_establish(struct vb_rdma_cm_id *p)
{
	CM_CALL("rdma_establish", p->verbs);
	if (p->qp)
		return cm_err(EINVAL);
	return cm_respond((struct cm_id *)p);
}

/* cm_refuse ends a connection that was never up: it notifies the connecting side of a rejection,
 * or the accepting side that its request is void. */
void cm_refuse(struct cm_id *id, int reason, const void *data, size_t len)
{
	struct cm_id *p = id->peer;

	if (!p)
		return;
	p->peer = NULL;
	id->peer = NULL;
	p->state = CM_OVER;
	if (cm_is_ud(p)) { /* the private data is delivered too (kernel cma.c, cma_sidr_rep_handler) */
		struct cm_event *e = told(data, len, CM_PRIVATE_SIDR_REP);

		e->event.param.ud = (struct vb_rdma_ud_param){ .private_data = e->data, .private_data_len = CM_PRIVATE_SIDR_REP };
		cm_push(p, VB_RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_REJECT, e);
	} else
		cm_push(p, VB_RDMA_CM_EVENT_REJECTED, reason, told(data, len, CM_PRIVATE_REJ));
}

int cm_reject(struct vb_rdma_cm_id *p, const void *data, uint8_t len, int reason)
{
	struct cm_id *id = (struct cm_id *)p;
	int err = 0;

	pthread_mutex_lock(&cm_mu);
	if (id->state != CM_REQUEST || len > (cm_is_ud(id) ? CM_PRIVATE_SIDR_REP : CM_PRIVATE_REJ)) {
		err = EINVAL;
	} else {
		cm_refuse(id, reason, data, len);
		id->state = CM_OVER;
	}
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}

CM_EXPORT int rdma_reject(struct vb_rdma_cm_id *p, const void *data, uint8_t len)
{
	CM_CALL("rdma_reject", p->verbs);
	return cm_reject(p, data, len, CM_REJ_CONSUMER);
}

static void down(struct cm_id *id)
{
	id->state = CM_DOWN;
	cm_push(id, VB_RDMA_CM_EVENT_DISCONNECTED, 0, told(NULL, 0, 0));
	cm_push(id, VB_RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
}

/* cm_part ends a connection: a DREQ, answered at once whether the peer's program does so or not,
 * and a TIMEWAIT that is already over. */
void cm_part(struct cm_id *id)
{
	struct cm_id *p = id->peer;

	if (id->state != CM_UP && id->state != CM_ANSWERED && !(id->state == CM_ASKED && p))
		return;
	if (cm_is_ud(id)) {
		id->state = CM_OVER;
		return;
	}
	down(id);
	if (p && (p->state == CM_UP || p->state == CM_ANSWERED || p->state == CM_ASKED))
		down(p);
}

CM_EXPORT int rdma_disconnect(struct vb_rdma_cm_id *p)
{
	struct cm_id *id = (struct cm_id *)p;
	int err;

	CM_CALL("rdma_disconnect", p->verbs);
	if (!p->verbs)
		return cm_err(EINVAL);
	err = cm_qp_err(id);
	if (err)
		return cm_err(err);
	pthread_mutex_lock(&cm_mu);
	if (cm_is_ud(id) || (id->state != CM_UP && id->state != CM_ANSWERED && id->state != CM_DOWN))
		err = EINVAL;
	else
		cm_part(id); /* a connection that is down already notifies no more */
	pthread_mutex_unlock(&cm_mu);
	return err ? cm_err(err) : 0;
}
