#include <arpa/inet.h>
#include <pthread.h>
#include "test.h"

static struct sockaddr_in at(int dev, int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000001 + dev) };
}

static struct vb_rdma_cm_event *event(struct vb_rdma_event_channel *ch, int type)
{
	struct vb_rdma_cm_event *e;

	CHECK(readable(ch->fd), "no event, want %d", type);
	CHECK(!rdma_get_cm_event(ch, &e), "%s", strerror(errno));
	CHECK(e->event == type, "event %d status %d, want %d", e->event, e->status, type);
	return e;
}

static void take(struct vb_rdma_event_channel *ch, int type) { rdma_ack_cm_event(event(ch, type)); }

struct side {
	struct vb_rdma_event_channel *ch;
	struct vb_rdma_cm_id *id;
	struct vb_pd *pd;
	struct vb_cq *cq;
};

static void qp_of(struct side *s, int type)
{
	struct vb_qp_init_attr a = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = type };

	s->pd = ibv_alloc_pd(s->id->verbs);
	s->cq = ibv_create_cq(s->id->verbs, 16, NULL, NULL, 0);
	a.send_cq = a.recv_cq = s->cq;
	CHECK(!rdma_create_qp(s->id, s->pd, &a), "%s", strerror(errno));
}

static void side_end(struct side *s)
{
	if (s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->cq)
		CHECK(!ibv_destroy_cq(s->cq), "cq");
	if (s->pd)
		CHECK(!ibv_dealloc_pd(s->pd), "pd");
	CHECK(!rdma_destroy_id(s->id), "id");
}

static struct vb_rdma_cm_id *listening(struct vb_rdma_event_channel *ch, int dev, int port, int ps)
{
	struct sockaddr_in a = at(dev, port);
	struct vb_rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, (void *)0x77, ps), "create_id");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&a) && !rdma_listen(id, 4), "%s", strerror(errno));
	return id;
}

static void resolve(struct side *s, int ps, struct sockaddr_in to)
{
	CHECK(!rdma_create_id(s->ch, &s->id, s, ps), "create_id");
	CHECK(!rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, 1000), "%s", strerror(errno));
	take(s->ch, VB_RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(s->id->verbs, "bound to a device");
	CHECK(!rdma_resolve_route(s->id, 1000), "route");
	take(s->ch, VB_RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void connection(void)
{
	struct side a = { .ch = rdma_create_event_channel() }, b = { .ch = rdma_create_event_channel() };
	struct vb_rdma_conn_param p = { .private_data = "ask", .private_data_len = 3, .responder_resources = 3, .initiator_depth = 2, .rnr_retry_count = 7 };
	struct vb_rdma_cm_id *l = listening(b.ch, 1, 7000, VB_RDMA_PS_TCP);
	struct vb_rdma_cm_event *e;
	struct vb_qp_attr qa;
	struct vb_qp_init_attr qi;

	resolve(&a, VB_RDMA_PS_TCP, at(1, 7000));
	qp_of(&a, VB_QPT_RC);
	CHECK(!rdma_connect(a.id, &p), "%s", strerror(errno));
	e = event(b.ch, VB_RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->listen_id == l && e->id->context == (void *)0x77 && e->param.conn.private_data_len == 56 &&
	      !memcmp(e->param.conn.private_data, "ask\0", 4) && e->param.conn.responder_resources == 2 && e->param.conn.initiator_depth == 3, "the request");
	b.id = e->id;
	rdma_ack_cm_event(e);
	qp_of(&b, VB_QPT_RC);
	p.private_data = "answer";
	p.private_data_len = 6;
	p.responder_resources = 2;
	p.initiator_depth = 3;
	CHECK(!rdma_accept(b.id, &p), "%s", strerror(errno));
	e = event(a.ch, VB_RDMA_CM_EVENT_ESTABLISHED);
	CHECK(e->param.conn.private_data_len == 196 && !memcmp(e->param.conn.private_data, "answer\0", 7), "the answer");
	rdma_ack_cm_event(e);
	take(b.ch, VB_RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!ibv_query_qp(a.id->qp, &qa, 0, &qi) && qa.qp_state == VB_QPS_RTS && qa.max_rd_atomic == 2 && qa.dest_qp_num == b.id->qp->qp_num, "A's QP");
	CHECK(!ibv_query_qp(b.id->qp, &qa, 0, &qi) && qa.qp_state == VB_QPS_RTS && qa.max_dest_rd_atomic == 2 && qa.rnr_retry == 7, "B's QP");
	CHECK(!rdma_disconnect(a.id), "disconnect");
	take(a.ch, VB_RDMA_CM_EVENT_DISCONNECTED);
	take(a.ch, VB_RDMA_CM_EVENT_TIMEWAIT_EXIT);
	take(b.ch, VB_RDMA_CM_EVENT_DISCONNECTED);
	take(b.ch, VB_RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK(!rdma_disconnect(b.id) && !readable(b.ch->fd), "disconnecting what is disconnected");
	side_end(&a);
	side_end(&b);
	CHECK(!rdma_destroy_id(l), "listener");
	rdma_destroy_event_channel(a.ch);
	rdma_destroy_event_channel(b.ch);
}

static void refusals(void)
{
	struct side a = { .ch = rdma_create_event_channel() }, b = { .ch = rdma_create_event_channel() };
	struct vb_rdma_conn_param p = { .qp_num = 9 };
	struct vb_rdma_cm_id *l, *x;
	struct vb_rdma_cm_event *e;
	struct sockaddr_in to = at(1, 7000);

	resolve(&a, VB_RDMA_PS_TCP, at(0, 7001));
	CHECK(!rdma_connect(a.id, &p), "connect");
	e = event(a.ch, VB_RDMA_CM_EVENT_REJECTED);
	CHECK(e->status == 8, "status %d", e->status);
	rdma_ack_cm_event(e);
	side_end(&a);
	l = listening(b.ch, 1, 7000, VB_RDMA_PS_TCP);
	CHECK(!rdma_create_id(b.ch, &x, NULL, VB_RDMA_PS_TCP) && rdma_bind_addr(x, (struct sockaddr *)&to) == -1 && errno == EADDRINUSE, "in use");
	CHECK(!rdma_destroy_id(x), "destroy");
	resolve(&a, VB_RDMA_PS_TCP, at(1, 7000));
	CHECK(rdma_accept(a.id, &p) == -1 && errno == EINVAL, "nothing to accept");
	CHECK(!rdma_connect(a.id, &p), "connect");
	e = event(b.ch, VB_RDMA_CM_EVENT_CONNECT_REQUEST);
	x = e->id;
	rdma_ack_cm_event(e);
	CHECK(!rdma_reject(x, "no", 2), "reject");
	e = event(a.ch, VB_RDMA_CM_EVENT_REJECTED);
	CHECK(e->status == 28 && e->param.conn.private_data_len == 148 && !memcmp(e->param.conn.private_data, "no\0", 3), "the reason");
	rdma_ack_cm_event(e);
	CHECK(!rdma_destroy_id(x), "destroy");
	side_end(&a);
	/* a request that was not taken is rejected when its listener is destroyed */
	resolve(&a, VB_RDMA_PS_TCP, at(1, 7000));
	CHECK(!rdma_connect(a.id, &p), "connect");
	CHECK(!rdma_destroy_id(l), "listener");
	take(a.ch, VB_RDMA_CM_EVENT_REJECTED);
	side_end(&a);
	rdma_destroy_event_channel(a.ch);
	rdma_destroy_event_channel(b.ch);
}

/* A queue pair unknown to librdmacm: CONNECT_RESPONSE, rdma_establish. */
static void own_queue_pair(void)
{
	struct side a = { .ch = rdma_create_event_channel() }, b = { .ch = rdma_create_event_channel() };
	struct end qa = make(0, (struct shape){ 0 }), qb = make(1, (struct shape){ 0 });
	struct vb_rdma_cm_id *l = listening(b.ch, 1, 7000, VB_RDMA_PS_TCP);
	struct vb_rdma_conn_param p = { .qp_num = qa.qp->qp_num, .initiator_depth = 1, .responder_resources = 1 };
	struct vb_rdma_cm_event *e;
	struct sockaddr_in from = at(0, 0), to = at(1, 7000);
	struct vb_send_wr wr = op(VB_WR_SEND, 4, NULL);

	CHECK(!rdma_create_id(a.ch, &a.id, NULL, VB_RDMA_PS_TCP), "create_id");
	CHECK(!rdma_resolve_addr(a.id, (struct sockaddr *)&from, (struct sockaddr *)&to, 1), "resolve");
	take(a.ch, VB_RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!strcmp(a.id->verbs->device->name, "null0"), "the device of the source address");
	CHECK(!rdma_resolve_route(a.id, 1), "route");
	take(a.ch, VB_RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_connect(a.id, &p), "connect");
	e = event(b.ch, VB_RDMA_CM_EVENT_CONNECT_REQUEST);
	b.id = e->id;
	CHECK(e->param.conn.qp_num == qa.qp->qp_num, "qp_num");
	rdma_ack_cm_event(e);
	for (int i = 0; i < 2; i++) {
		struct end *q = i ? &qa : &qb;
		struct vb_rdma_cm_id *id = i ? a.id : b.id;

		if (i)
			take(a.ch, VB_RDMA_CM_EVENT_CONNECT_RESPONSE);
		for (int s = VB_QPS_INIT; s <= VB_QPS_RTS; s++) {
			struct vb_qp_attr at = { .qp_state = s };
			int mask;

			CHECK(!rdma_init_qp_attr(id, &at, &mask), "init_qp_attr %d", s);
			CHECK(!ibv_modify_qp(q->qp, &at, mask), "modify to %d", s);
		}
		p.qp_num = qb.qp->qp_num;
		if (!i)
			CHECK(!rdma_accept(b.id, &p), "accept");
	}
	CHECK(!readable(b.ch->fd), "not established yet");
	CHECK(!rdma_establish(a.id), "establish");
	take(b.ch, VB_RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!recv_at(&qb, 5, 0, 0) && !post(&qa, &wr), "send");
	completes(&qa, 4, VB_WC_SUCCESS);
	completes(&qb, 5, VB_WC_SUCCESS);
	CHECK(!rdma_destroy_id(a.id), "destroy");
	take(b.ch, VB_RDMA_CM_EVENT_DISCONNECTED);
	take(b.ch, VB_RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK(!rdma_destroy_id(b.id) && !rdma_destroy_id(l), "destroy");
	end(&qa);
	end(&qb);
	rdma_destroy_event_channel(a.ch);
	rdma_destroy_event_channel(b.ch);
}

static void datagrams(void)
{
	struct side a = { .ch = rdma_create_event_channel() }, b = { .ch = rdma_create_event_channel() };
	struct vb_rdma_cm_id *l = listening(b.ch, 1, 7000, VB_RDMA_PS_UDP);
	struct vb_rdma_conn_param p = { .private_data = "who", .private_data_len = 3 };
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xe0000101) };
	struct vb_rdma_cm_event *e;

	resolve(&a, VB_RDMA_PS_UDP, at(1, 7000));
	qp_of(&a, VB_QPT_UD);
	CHECK(!rdma_connect(a.id, &p), "connect");
	e = event(b.ch, VB_RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->param.ud.private_data_len == 180 && !memcmp(e->param.ud.private_data, "who\0", 4), "the question");
	b.id = e->id;
	rdma_ack_cm_event(e);
	qp_of(&b, VB_QPT_UD);
	CHECK(!rdma_accept(b.id, &p), "accept");
	e = event(a.ch, VB_RDMA_CM_EVENT_ESTABLISHED);
	CHECK(e->param.ud.qp_num == b.id->qp->qp_num && e->param.ud.qkey == 0x01234567 && e->param.ud.ah_attr.grh.dgid.raw[15] == 2, "the way");
	rdma_ack_cm_event(e);
	CHECK(!rdma_join_multicast(a.id, (struct sockaddr *)&group, (void *)5), "join");
	e = event(a.ch, VB_RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(e->param.ud.qp_num == 0xffffff && e->param.ud.private_data == (void *)5, "the group");
	rdma_ack_cm_event(e);
	CHECK(!rdma_leave_multicast(a.id, (struct sockaddr *)&group), "leave");
	CHECK(rdma_leave_multicast(a.id, (struct sockaddr *)&group) == -1, "leave twice");
	side_end(&a);
	side_end(&b);
	CHECK(!rdma_destroy_id(l), "listener");
	rdma_destroy_event_channel(a.ch);
	rdma_destroy_event_channel(b.ch);
}

static void *destroys(void *id)
{
	CHECK(!rdma_destroy_id(id), "destroy");
	return id;
}

/* Destroying waits for the acknowledgement; an event moves with its identifier. */
static void acknowledgements(void)
{
	struct side a = { .ch = rdma_create_event_channel() };
	struct vb_rdma_event_channel *other = rdma_create_event_channel();
	struct sockaddr_in to = at(1, 1);
	struct vb_rdma_cm_event *e;
	pthread_t t;

	CHECK(!rdma_create_id(a.ch, &a.id, NULL, VB_RDMA_PS_TCP), "create_id");
	CHECK(!rdma_resolve_addr(a.id, NULL, (struct sockaddr *)&to, 1), "resolve");
	CHECK(!rdma_migrate_id(a.id, other), "migrate");
	e = event(other, VB_RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!fcntl(a.ch->fd, F_SETFL, O_NONBLOCK), "nonblock");
	CHECK(stats().unacked == 1, "unacked");
	pthread_create(&t, NULL, destroys, a.id);
	CHECK(stats().live.cm_id == 1, "it waits");
	rdma_ack_cm_event(e);
	pthread_join(t, NULL);
	CHECK(stats().live.cm_id == 0, "and is destroyed");
	CHECK(rdma_get_cm_event(a.ch, &e) == -1 && errno == EAGAIN, "nothing is left on the old channel");
	rdma_destroy_event_channel(a.ch);
	rdma_destroy_event_channel(other);
}

static struct vb_rdma_cm_id *endpoint(int type, struct sockaddr_in *a)
{
	struct vb_rdma_addrinfo ai = { .ai_flags = VB_RAI_PASSIVE, .ai_family = AF_INET, .ai_qp_type = type,
		.ai_port_space = VB_RDMA_PS_IB, .ai_src_len = sizeof(*a), .ai_src_addr = (struct sockaddr *)a };
	struct vb_rdma_cm_id *id;

	CHECK(!rdma_create_ep(&id, &ai, NULL, NULL), "%s", strerror(errno));
	CHECK(id->qp_type == type && id->verbs && stats().live.cm_channel, "synchronous, bound");
	return id;
}

/* Endpoints are synchronous until they are moved to a channel. Requests meet listeners of their type. */
static void endpoints(void)
{
	struct vb_rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in from = at(0, 0), to = at(1, 7000);
	struct vb_rdma_cm_id *l = endpoint(VB_QPT_XRC_RECV, &to), *rc, *xrc;
	struct vb_rdma_conn_param p = { .qp_num = 9 };
	struct vb_qp_attr a = { .qp_state = VB_QPS_RTS };
	struct vb_rdma_cm_event *e;
	int mask;

	CHECK(!rdma_migrate_id(l, ch) && stats().live.cm_channel == 1, "its own channel is gone");
	CHECK(!rdma_listen(l, 4), "listen");
	rc = endpoint(VB_QPT_RC, &from);
	xrc = endpoint(VB_QPT_XRC_SEND, &from);
	for (struct vb_rdma_cm_id **id = (struct vb_rdma_cm_id *[]){ rc, xrc, NULL }; *id; id++) {
		CHECK(!rdma_migrate_id(*id, ch), "migrate");
		CHECK(!rdma_resolve_addr(*id, NULL, (struct sockaddr *)&to, 1000), "%s", strerror(errno));
		take(ch, VB_RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(!rdma_resolve_route(*id, 1000), "route");
		take(ch, VB_RDMA_CM_EVENT_ROUTE_RESOLVED);
		CHECK(!rdma_connect(*id, &p), "connect");
		if (*id == rc)
			take(ch, VB_RDMA_CM_EVENT_REJECTED);
	}
	e = event(ch, VB_RDMA_CM_EVENT_CONNECT_REQUEST);
	l->context = e->id;
	rdma_ack_cm_event(e);
	CHECK(!rdma_init_qp_attr(l->context, &a, &mask) && mask == (VB_QP_STATE | VB_QP_SQ_PSN | VB_QP_TIMEOUT), "mask 0x%x", mask);
	CHECK(!rdma_destroy_id(l->context), "destroy");
	take(ch, VB_RDMA_CM_EVENT_REJECTED);
	CHECK(!rdma_destroy_id(rc) && !rdma_destroy_id(xrc) && !rdma_destroy_id(l), "destroy");
	l = endpoint(VB_QPT_XRC_SEND, &from);
	CHECK(!rdma_destroy_id(l) && stats().live.cm_channel == 1, "destroyed with its channel");
	rdma_destroy_event_channel(ch);
}

static void faults(void)
{
	struct side a = { .ch = rdma_create_event_channel() };

	fault(NULLDEV_ERRNO, "rdma_create_id", 1, 1, ENODEV, 0, 0);
	CHECK(rdma_create_id(a.ch, &a.id, NULL, VB_RDMA_PS_TCP) == -1 && errno == ENODEV, "-1 and errno");
	fault(NULLDEV_ERRNO, "rdma_create_id", 1, 1, ENODEV, NULLDEV_HOW_NEGATIVE, 0);
	CHECK(rdma_create_id(a.ch, &a.id, NULL, VB_RDMA_PS_TCP) == -ENODEV, "negative");
	nulldev_clear_faults();
	resolve(&a, VB_RDMA_PS_TCP, at(1, 7000));
	CHECK(nulldev_cm_removal("null1") == 1 && nulldev_cm_removal("none") < 0, "removal");
	take(a.ch, VB_RDMA_CM_EVENT_DEVICE_REMOVAL);
	side_end(&a);
	rdma_destroy_event_channel(a.ch);
}

int main(void)
{
	RUN(connection);
	RUN(refusals);
	RUN(own_queue_pair);
	RUN(datagrams);
	RUN(acknowledgements);
	RUN(endpoints);
	RUN(faults);
	return 0;
}
