/* Helpers of the C programs that call the null device as an application does. */
#ifndef TEST_H
#define TEST_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "vb_rdmacm.h"
#include "nulldev.h"

#define CHECK(cond, ...)                                                      \
	do {                                                                  \
		if (!(cond)) {                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
			fprintf(stderr, __VA_ARGS__);                         \
			fprintf(stderr, "\n");                                \
			exit(1);                                              \
		}                                                             \
	} while (0)

struct vb_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct vb_device **);
const char *ibv_get_device_name(struct vb_device *);
struct vb_context *ibv_open_device(struct vb_device *);
int ibv_close_device(struct vb_context *);
struct vb_pd *ibv_alloc_pd(struct vb_context *);
int ibv_dealloc_pd(struct vb_pd *);
struct vb_mr *ibv_reg_mr(struct vb_pd *, void *, size_t, int);
int ibv_dereg_mr(struct vb_mr *);
struct vb_comp_channel *ibv_create_comp_channel(struct vb_context *);
int ibv_destroy_comp_channel(struct vb_comp_channel *);
struct vb_cq *ibv_create_cq(struct vb_context *, int, void *, struct vb_comp_channel *, int);
int ibv_destroy_cq(struct vb_cq *);
int ibv_get_cq_event(struct vb_comp_channel *, struct vb_cq **, void **);
void ibv_ack_cq_events(struct vb_cq *, unsigned);
struct vb_qp *ibv_create_qp(struct vb_pd *, struct vb_qp_init_attr *);
int ibv_modify_qp(struct vb_qp *, struct vb_qp_attr *, int);
int ibv_query_qp(struct vb_qp *, struct vb_qp_attr *, int, struct vb_qp_init_attr *);
int ibv_destroy_qp(struct vb_qp *);
struct vb_qp_ex *ibv_qp_to_qp_ex(struct vb_qp *);
struct vb_srq *ibv_create_srq(struct vb_pd *, struct vb_srq_init_attr *);
int ibv_destroy_srq(struct vb_srq *);
struct vb_ah *ibv_create_ah(struct vb_pd *, struct vb_ah_attr *);
int ibv_destroy_ah(struct vb_ah *);
int ibv_attach_mcast(struct vb_qp *, const union vb_gid *, uint16_t);
int ibv_detach_mcast(struct vb_qp *, const union vb_gid *, uint16_t);
int ibv_query_gid(struct vb_context *, uint8_t, int, union vb_gid *);
int ibv_query_port(struct vb_context *, uint8_t, struct vb_port_attr *);
int ibv_get_async_event(struct vb_context *, struct vb_async_event *);
void ibv_ack_async_event(struct vb_async_event *);

struct vb_rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct vb_rdma_event_channel *);
int rdma_create_id(struct vb_rdma_event_channel *, struct vb_rdma_cm_id **, void *, vb_enum);
int rdma_create_ep(struct vb_rdma_cm_id **, struct vb_rdma_addrinfo *, struct vb_pd *, struct vb_qp_init_attr *);
int rdma_destroy_id(struct vb_rdma_cm_id *);
int rdma_bind_addr(struct vb_rdma_cm_id *, struct sockaddr *);
int rdma_resolve_addr(struct vb_rdma_cm_id *, struct sockaddr *, struct sockaddr *, int);
int rdma_resolve_route(struct vb_rdma_cm_id *, int);
int rdma_listen(struct vb_rdma_cm_id *, int);
int rdma_connect(struct vb_rdma_cm_id *, struct vb_rdma_conn_param *);
int rdma_accept(struct vb_rdma_cm_id *, struct vb_rdma_conn_param *);
int rdma_reject(struct vb_rdma_cm_id *, const void *, uint8_t);
int rdma_disconnect(struct vb_rdma_cm_id *);
int rdma_create_qp(struct vb_rdma_cm_id *, struct vb_pd *, struct vb_qp_init_attr *);
void rdma_destroy_qp(struct vb_rdma_cm_id *);
int rdma_get_cm_event(struct vb_rdma_event_channel *, struct vb_rdma_cm_event **);
int rdma_ack_cm_event(struct vb_rdma_cm_event *);
int rdma_migrate_id(struct vb_rdma_cm_id *, struct vb_rdma_event_channel *);
int rdma_establish(struct vb_rdma_cm_id *);
int rdma_init_qp_attr(struct vb_rdma_cm_id *, struct vb_qp_attr *, int *);
int rdma_join_multicast(struct vb_rdma_cm_id *, struct sockaddr *, void *);
int rdma_leave_multicast(struct vb_rdma_cm_id *, struct sockaddr *);

enum { BUF = 4096, ALL = 0x30f }; /* all access bits: local, remote and flush */

/* One end: a context, a queue pair, memory. */
struct end {
	struct vb_context *ctx;
	struct vb_pd *pd;
	struct vb_mr *mr;
	struct vb_comp_channel *ch;
	struct vb_cq *cq;
	struct vb_qp *qp;
	struct vb_srq *srq;
	union vb_gid gid;
	uint8_t *buf;
};

struct shape {
	int type, sends, recvs, cqe, sges, inl, srq, sig_all;
	uint64_t ops;
};

static inline struct vb_context *open_dev(int i)
{
	int n;
	struct vb_device **list = ibv_get_device_list(&n);
	struct vb_context *c;

	CHECK(list && n == 2, "the list has %d devices", n);
	c = ibv_open_device(list[i]);
	CHECK(c, "%s", strerror(errno));
	ibv_free_device_list(list);
	return c;
}

static inline struct end make(int dev, struct shape s)
{
	struct end e = { .ctx = open_dev(dev) };
	struct vb_qp_init_attr_ex a = { .cap = { s.sends ? s.sends : 16, s.recvs ? s.recvs : 16, s.sges ? s.sges : 4, s.sges ? s.sges : 4, s.inl },
		.qp_type = s.type ? s.type : VB_QPT_RC, .sq_sig_all = s.sig_all, .comp_mask = VB_QP_INIT_ATTR_PD };

	e.pd = ibv_alloc_pd(e.ctx);
	e.buf = aligned_alloc(4096, BUF);
	memset(e.buf, 0, BUF);
	e.mr = ibv_reg_mr(e.pd, e.buf, BUF, ALL | VB_ACCESS_MW_BIND);
	e.ch = ibv_create_comp_channel(e.ctx);
	CHECK(e.pd && e.mr && e.ch, "%s", strerror(errno));
	CHECK(!fcntl(e.ch->fd, F_SETFL, O_NONBLOCK) && !fcntl(e.ctx->async_fd, F_SETFL, O_NONBLOCK), "%s", strerror(errno));
	e.cq = ibv_create_cq(e.ctx, s.cqe ? s.cqe : 128, &e, e.ch, 0);
	CHECK(e.cq, "%s", strerror(errno));
	if (s.srq) {
		struct vb_srq_init_attr sa = { .attr = { .max_wr = s.srq, .max_sge = 1 } };

		e.srq = ibv_create_srq(e.pd, &sa);
		CHECK(e.srq, "%s", strerror(errno));
	}
	a.send_cq = a.recv_cq = e.cq;
	a.srq = e.srq;
	a.pd = e.pd;
	if (s.ops) {
		a.comp_mask |= VB_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = s.ops;
	}
	e.qp = VB_CTX_OP(e.ctx, create_qp_ex)->create_qp_ex(e.ctx, &a);
	CHECK(e.qp, "%s", strerror(errno));
	CHECK(!ibv_query_gid(e.ctx, 1, 0, &e.gid), "%s", strerror(errno));
	return e;
}

static inline int state(struct end *e)
{
	struct vb_qp_attr a;
	struct vb_qp_init_attr i;

	CHECK(!ibv_query_qp(e->qp, &a, VB_QP_STATE, &i), "%s", strerror(errno));
	return a.qp_state;
}

static inline void to_init(struct end *e)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_INIT, .port_num = 1, .qp_access_flags = ALL, .qkey = 0x11111111 };
	int mask = VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT;

	mask |= e->qp->qp_type == VB_QPT_UD ? VB_QP_QKEY : VB_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(e->qp, &a, mask), "to INIT");
}

static inline void to_rts(struct end *e, struct end *peer)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_RTR, .path_mtu = VB_MTU_1024, .dest_qp_num = peer->qp->qp_num, .rq_psn = 5,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1 };
	int rc = e->qp->qp_type == VB_QPT_RC, ud = e->qp->qp_type == VB_QPT_UD;

	a.ah_attr.grh.dgid = peer->gid;
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | (ud ? 0 : VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN) |
		(rc ? VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER : 0)), "to RTR");
	a = (struct vb_qp_attr){ .qp_state = VB_QPS_RTS, .sq_psn = 5, .timeout = 8, .retry_cnt = 1, .rnr_retry = 7, .max_rd_atomic = 4 };
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_SQ_PSN |
		(rc ? VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC : 0)), "to RTS");
}

static inline void join(struct end *a, struct end *b)
{
	to_init(a);
	to_init(b);
	to_rts(a, b);
	to_rts(b, a);
}

static inline void to_err(struct end *e)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_ERR };

	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE), "to ERR");
}

static inline void end(struct end *e)
{
	struct vb_async_event ev;

	while (!ibv_get_async_event(e->ctx, &ev))
		ibv_ack_async_event(&ev);
	if (e->qp)
		CHECK(!ibv_destroy_qp(e->qp), "destroy_qp");
	if (e->srq)
		CHECK(!ibv_destroy_srq(e->srq), "destroy_srq");
	CHECK(!ibv_destroy_cq(e->cq), "destroy_cq");
	CHECK(!ibv_destroy_comp_channel(e->ch), "destroy_comp_channel");
	CHECK(!ibv_dereg_mr(e->mr), "dereg_mr");
	CHECK(!ibv_dealloc_pd(e->pd), "dealloc_pd");
	CHECK(!ibv_close_device(e->ctx), "close_device");
	free(e->buf);
}

static inline int polled(struct vb_cq *cq, struct vb_wc *wc, int n) { return cq->context->ops.poll_cq(cq, n, wc); }

/* completes waits for one completion, and checks it. */
static inline struct vb_wc completes(struct end *e, uint64_t id, int status)
{
	struct vb_wc wc;
	long n = 0;

	while (!polled(e->cq, &wc, 1))
		CHECK(++n < 200000000, "no completion of %d came", (int)id);
	CHECK(wc.wr_id == id && wc.status == status, "wr_id %d status %d, want %d %d", (int)wc.wr_id, wc.status, (int)id, status);
	return wc;
}

static inline void nothing(struct end *e)
{
	struct vb_wc wc;
	int n = polled(e->cq, &wc, 1);

	CHECK(n == 0, "%d completions, wr_id %d status %d", n, (int)wc.wr_id, wc.status);
}

static inline struct vb_sge piece(struct end *e, int at, int len)
{
	return (struct vb_sge){ .addr = (uintptr_t)e->buf + at, .length = len, .lkey = e->mr->lkey };
}

static inline int recv_at(struct end *e, uint64_t id, int at, int len)
{
	struct vb_sge s = piece(e, at, len);
	struct vb_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = len ? 1 : 0 }, *bad;

	return e->srq ? e->ctx->ops.post_srq_recv(e->srq, &wr, &bad) : e->ctx->ops.post_recv(e->qp, &wr, &bad);
}

static inline struct vb_send_wr op(int opcode, uint64_t id, struct vb_sge *s)
{
	return (struct vb_send_wr){ .wr_id = id, .sg_list = s, .num_sge = s ? 1 : 0, .opcode = opcode, .send_flags = VB_SEND_SIGNALED };
}

static inline int post(struct end *e, struct vb_send_wr *wr)
{
	struct vb_send_wr *bad;

	return e->ctx->ops.post_send(e->qp, wr, &bad);
}

static inline int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static inline struct nulldev_stats stats(void)
{
	struct nulldev_stats s;

	nulldev_stats(&s);
	return s;
}

static inline void nothing_left(void)
{
	struct nulldev_stats s = stats();
	struct nulldev_objects none = { 0 };

	CHECK(!memcmp(&s.live, &none, sizeof(none)), "objects are left: %d contexts %d pds %d mrs %d cqs %d channels %d qps %d ids", s.live.context,
	      s.live.pd, s.live.mr, s.live.cq, s.live.channel, s.live.qp, s.live.cm_id);
	CHECK(!s.unacked, "%d events are not acknowledged", (int)s.unacked);
}

static inline int fault(int kind, const char *call, int nth, int count, int err, int how, int arg)
{
	struct nulldev_fault f = { .kind = kind, .how = how, .nth = nth, .count = count, .err = err, .arg = arg };
	int n;

	strcpy(f.call, call);
	n = nulldev_add_fault(&f);
	CHECK(n > 0, "adding the fault: %d", n);
	return n;
}

#define RUN(t) do { printf("%s\n", #t); fflush(stdout); t(); nulldev_clear_faults(); nothing_left(); } while (0)

#endif
