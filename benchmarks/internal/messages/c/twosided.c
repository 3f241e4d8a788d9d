/* The baseline for messages: both ends of a connection of the null device in mode loopback, in one
 * thread, which sends messages and receives them, and posts each receive again.
 *
 * It is a side of package benchmarks/internal/side: a round for each line of its standard input. With
 * list=0 the ops are round trips of one message each way; otherwise they are messages one way, in lists
 * of that length, the last of each signaled. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include "vb_verbs.h"
#include "nulldev.h"

enum { MOST = 256, BUF = 4096, WORD = 8, ACCESS = 1, NO_LIMIT = 7 }; /* local write; RNR retries */

#define CHECK(cond)                                                                             \
	do {                                                                                    \
		if (!(cond)) {                                                                  \
			printf("cannot %s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

struct vb_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct vb_device **);
struct vb_context *ibv_open_device(struct vb_device *);
int ibv_close_device(struct vb_context *);
struct vb_pd *ibv_alloc_pd(struct vb_context *);
int ibv_dealloc_pd(struct vb_pd *);
struct vb_mr *ibv_reg_mr(struct vb_pd *, void *, size_t, int);
int ibv_dereg_mr(struct vb_mr *);
struct vb_cq *ibv_create_cq(struct vb_context *, int, void *, struct vb_comp_channel *, int);
int ibv_destroy_cq(struct vb_cq *);
struct vb_qp *ibv_create_qp(struct vb_pd *, struct vb_qp_init_attr *);
int ibv_modify_qp(struct vb_qp *, struct vb_qp_attr *, int);
int ibv_destroy_qp(struct vb_qp *);
int ibv_query_gid(struct vb_context *, uint8_t, int, union vb_gid *);

/* One end, with its requests written once. */
struct end {
	struct vb_context *ctx;
	struct vb_pd *pd;
	struct vb_mr *mr;
	struct vb_cq *scq, *rcq;
	struct vb_qp *qp;
	union vb_gid gid;
	char *buf;
	struct vb_sge sge;
	struct vb_send_wr send[MOST];
	struct vb_recv_wr recv[MOST];
};

static void make(struct end *e, int dev)
{
	struct vb_qp_init_attr a = { .cap = { .max_send_wr = MOST, .max_recv_wr = MOST, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = VB_QPT_RC };
	struct vb_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	e->ctx = ibv_open_device(list[dev]);
	ibv_free_device_list(list);
	CHECK(e->ctx);
	CHECK((e->pd = ibv_alloc_pd(e->ctx)));
	CHECK((e->buf = aligned_alloc(BUF, BUF)));
	memset(e->buf, 0, BUF);
	CHECK((e->mr = ibv_reg_mr(e->pd, e->buf, BUF, ACCESS)));
	CHECK((e->scq = ibv_create_cq(e->ctx, MOST, NULL, NULL, 0)));
	CHECK((e->rcq = ibv_create_cq(e->ctx, MOST, NULL, NULL, 0)));
	a.send_cq = e->scq;
	a.recv_cq = e->rcq;
	CHECK((e->qp = ibv_create_qp(e->pd, &a)));
	CHECK(!ibv_query_gid(e->ctx, 1, 0, &e->gid));
	e->sge = (struct vb_sge){ .addr = (uintptr_t)e->buf, .length = WORD, .lkey = e->mr->lkey };
	for (int i = 0; i < MOST; i++) {
		e->send[i] = (struct vb_send_wr){ .wr_id = i, .sg_list = &e->sge, .num_sge = 1, .opcode = VB_WR_SEND };
		e->recv[i] = (struct vb_recv_wr){ .wr_id = i, .sg_list = &e->sge, .num_sge = 1 };
	}
}

static void join(struct end *e, struct end *peer)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS));
	a = (struct vb_qp_attr){ .qp_state = VB_QPS_RTR, .path_mtu = VB_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1 };
	a.ah_attr.grh.dgid = peer->gid;
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER));
	a = (struct vb_qp_attr){ .qp_state = VB_QPS_RTS, .timeout = 8, .retry_cnt = 1, .rnr_retry = NO_LIMIT, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC));
}

static void end(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp));
	CHECK(!ibv_destroy_cq(e->scq));
	CHECK(!ibv_destroy_cq(e->rcq));
	CHECK(!ibv_dereg_mr(e->mr));
	CHECK(!ibv_dealloc_pd(e->pd));
	CHECK(!ibv_close_device(e->ctx));
	free(e->buf);
}

/* post_recvs posts n receives as one list. */
static void post_recvs(struct end *e, int n)
{
	struct vb_recv_wr *bad;

	for (int i = 0; i < n; i++)
		e->recv[i].next = i < n - 1 ? &e->recv[i + 1] : NULL;
	CHECK(!e->ctx->ops.post_recv(e->qp, e->recv, &bad));
}

/* post_sends posts n messages as one list, the last one signaled. */
static void post_sends(struct end *e, int n)
{
	struct vb_send_wr *bad;

	for (int i = 0; i < n; i++) {
		e->send[i].next = i < n - 1 ? &e->send[i + 1] : NULL;
		e->send[i].send_flags = i < n - 1 ? 0 : VB_SEND_SIGNALED;
	}
	CHECK(!e->ctx->ops.post_send(e->qp, e->send, &bad));
}

/* take polls n completions. */
static void take(struct end *e, struct vb_cq *cq, int n)
{
	struct vb_wc wc[MOST];

	while (n > 0) {
		int got = e->ctx->ops.poll_cq(cq, MOST, wc);

		CHECK(got >= 0);
		for (int i = 0; i < got; i++)
			CHECK(wc[i].status == VB_WC_SUCCESS);
		n -= got;
	}
}

/* pass sends n messages from one end to the other, which posts its receives again. */
static void pass(struct end *from, struct end *to, int n)
{
	post_sends(from, n);
	take(to, to->rcq, n);
	post_recvs(to, n);
	take(from, from->scq, 1);
}

static double used(void)
{
	struct rusage u;

	CHECK(!getrusage(RUSAGE_SELF, &u));
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

static double now(void)
{
	struct timespec t;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &t));
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(void)
{
	static struct end a, b;
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	make(&a, 0);
	make(&b, 1);
	join(&a, &b);
	join(&b, &a);
	post_recvs(&a, MOST / 2);
	post_recvs(&b, MOST / 2);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		double ops, list, cpu, wall;

		/* Values.String writes the names in this order. */
		if (sscanf(line, "round list=%lf ops=%lf", &list, &ops) != 2 || ops < 1 || list < 0 || list > MOST / 2) {
			printf("cannot what is that: %s", line);
			continue;
		}
		cpu = used();
		wall = now();
		for (long done = 0; done < ops;) {
			long n = list < 1 ? 1 : list;

			if (n > ops - done)
				n = ops - done;
			pass(&a, &b, n);
			if (list < 1)
				pass(&b, &a, 1);
			done += n;
		}
		wall = now() - wall;
		cpu = used() - cpu;
		printf("ok cpu_ns=%.0f ops=%.0f wall_ns=%.0f\n", cpu, ops, wall);
	}
	end(&a);
	end(&b);
	return 0;
}
