/* The baseline for the runtime's cost: a loop that posts lists of WRITEs and polls their
 * completions, on the null device in instant mode, with the list length, the signaling period and
 * the depth that the runtime had, passed as arguments.
 *
 * It is a side of package benchmarks/internal/side: a round for each line of its standard input.
 * It measures the CPU time of its whole process, over the loop alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include "vb_verbs.h"
#include "nulldev.h"

enum { MOST = 4096, POLL = 64, BUF = 4096, WORD = 8, ACCESS = 7 }; /* local write, remote write, remote read */

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

/* One end of the connection. */
struct end {
	struct vb_context *ctx;
	struct vb_pd *pd;
	struct vb_mr *mr;
	struct vb_cq *cq;
	struct vb_qp *qp;
	union vb_gid gid;
	char *buf;
};

static struct end make(int dev)
{
	struct end e = { 0 };
	struct vb_qp_init_attr a = { .cap = { .max_send_wr = MOST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = VB_QPT_RC };
	struct vb_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	e.ctx = ibv_open_device(list[dev]);
	ibv_free_device_list(list);
	CHECK(e.ctx);
	CHECK((e.pd = ibv_alloc_pd(e.ctx)));
	CHECK((e.buf = aligned_alloc(BUF, BUF)));
	memset(e.buf, 0, BUF);
	CHECK((e.mr = ibv_reg_mr(e.pd, e.buf, BUF, ACCESS)));
	CHECK((e.cq = ibv_create_cq(e.ctx, MOST, NULL, NULL, 0)));
	a.send_cq = a.recv_cq = e.cq;
	CHECK((e.qp = ibv_create_qp(e.pd, &a)));
	CHECK(!ibv_query_gid(e.ctx, 1, 0, &e.gid));
	return e;
}

static void join(struct end *e, struct end *peer)
{
	struct vb_qp_attr a = { .qp_state = VB_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };

	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT | VB_QP_ACCESS_FLAGS));
	a = (struct vb_qp_attr){ .qp_state = VB_QPS_RTR, .path_mtu = VB_MTU_1024, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1 };
	a.ah_attr.grh.dgid = peer->gid;
	a.ah_attr.is_global = a.ah_attr.port_num = 1;
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN | VB_QP_RQ_PSN | VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER));
	a = (struct vb_qp_attr){ .qp_state = VB_QPS_RTS, .timeout = 8, .retry_cnt = 1, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(e->qp, &a, VB_QP_STATE | VB_QP_SQ_PSN | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY | VB_QP_MAX_QP_RD_ATOMIC));
}

static void end(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp));
	CHECK(!ibv_destroy_cq(e->cq));
	CHECK(!ibv_dereg_mr(e->mr));
	CHECK(!ibv_dealloc_pd(e->pd));
	CHECK(!ibv_close_device(e->ctx));
	free(e->buf);
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

/* The arguments and the results of one round. */
struct told {
	double ops, list, period, depth;
};

struct counted {
	long posted, lists, polled;
};

/* loop posts ops WRITEs. The requests are written once, as in a program that posts the same ones
 * again; the differences are written for each list. The number of lists and of signaled requests
 * matches the arguments on average, with a fraction carried over. */
static struct counted loop(struct end *e, struct vb_send_wr *wr, struct told t)
{
	struct counted c = { 0 };
	struct vb_wc wc[POLL];
	long done = 0, ops = t.ops, depth = t.depth;
	double length = 0, signals = 0;

	while (done < ops) {
		struct vb_send_wr *bad;
		long n, k, due = 0, most = (long)t.list + (t.list > (long)t.list);
		int got;

		length += t.list;
		n = length < 1 ? 1 : length;
		length -= n;
		if (n > ops - c.posted)
			n = ops - c.posted;
		signals += n / t.period;
		k = signals > 0 ? signals : 0;
		/* The last of all, and where the next list would otherwise find no room. */
		if (!k && (c.posted + n == ops || c.posted + n - done + most > depth))
			k = 1;
		signals -= k;
		for (long i = 0; i < n; i++) {
			wr[i].wr_id = c.posted + i + 1;
			wr[i].send_flags = (due += k) >= n ? VB_SEND_SIGNALED : 0; /* evenly, and the last */
			due -= wr[i].send_flags ? n : 0;
			wr[i].next = &wr[i + 1];
		}
		wr[n - 1].next = NULL;
		CHECK(!e->ctx->ops.post_send(e->qp, wr, &bad));
		c.posted += n;
		c.lists++;
		do {
			got = e->ctx->ops.poll_cq(e->cq, POLL, wc);
			CHECK(got >= 0);
			c.polled += got;
			for (int i = 0; i < got; i++) {
				CHECK(wc[i].status == VB_WC_SUCCESS);
				done = wc[i].wr_id;
			}
		} while (c.posted < ops ? c.posted - done + most > depth && c.posted > done : done < ops);
	}
	return c;
}

int main(void)
{
	struct vb_send_wr *wr;
	struct vb_sge sge;
	struct end a, b;
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	nulldev_set_mode(NULLDEV_INSTANT);
	a = make(0);
	b = make(1);
	join(&a, &b);
	join(&b, &a);
	sge = (struct vb_sge){ .addr = (uintptr_t)a.buf, .length = WORD, .lkey = a.mr->lkey };
	CHECK((wr = calloc(MOST + 1, sizeof(*wr))));
	for (int i = 0; i < MOST; i++) {
		wr[i] = (struct vb_send_wr){ .sg_list = &sge, .num_sge = 1, .opcode = VB_WR_RDMA_WRITE };
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.buf;
		wr[i].wr.rdma.rkey = b.mr->rkey;
	}
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		struct told t = { 0 };
		struct counted c;
		double cpu, wall;

		/* Values.String writes the names in this order. */
		if (sscanf(line, "round depth=%lf list=%lf ops=%lf period=%lf", &t.depth, &t.list, &t.ops, &t.period) != 4 ||
		    t.ops < 1 || t.list < 1 || t.period < 1 || t.depth < t.list || t.depth >= MOST) {
			printf("cannot what is that: %s", line);
			continue;
		}
		cpu = used();
		wall = now();
		c = loop(&a, wr, t);
		wall = now() - wall;
		cpu = used() - cpu;
		printf("ok cpu_ns=%.0f ops=%ld polled=%ld posted=%ld lists=%ld wall_ns=%.0f\n", cpu, c.posted, c.polled, c.posted, c.lists, wall);
	}
	end(&a);
	end(&b);
	free(wr);
	return 0;
}
