#include "test.h"

enum { N = 1000, BATCH = 10 };

/* The work of instant mode, as counted. */
static void counters(void)
{
	struct end a, b;
	struct nulldev_stats s0, s1;
	struct vb_sge s;
	struct vb_send_wr wr[BATCH];
	struct vb_wc wc[BATCH];

	nulldev_set_mode(NULLDEV_INSTANT);
	a = make(0, (struct shape){ .sends = 64 });
	b = make(1, (struct shape){ 0 });
	join(&a, &b);
	s = piece(&a, 0, 64);
	memset(a.buf, 1, 64);
	for (int i = 0; i < BATCH; i++) {
		wr[i] = op(VB_WR_RDMA_WRITE, i, &s);
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.buf;
		wr[i].wr.rdma.rkey = b.mr->rkey;
		wr[i].next = i < BATCH - 1 ? &wr[i + 1] : NULL;
		if (i % 2 == 0)
			wr[i].send_flags = 0;
	}
	s0 = stats();
	for (int i = 0; i < N; i++) {
		CHECK(!post(&a, wr), "post");
		CHECK(polled(a.cq, wc, BATCH) == BATCH / 2 && wc[0].wr_id == 1 && wc[4].wr_id == 9 && wc[0].opcode == VB_WC_RDMA_WRITE &&
		      wc[0].qp_num == a.qp->qp_num, "every signaled one completes");
	}
	s1 = stats();
	CHECK(s1.sends - s0.sends == N && s1.doorbells - s0.doorbells == N, "one doorbell for each post");
	CHECK(s1.send_wrs - s0.send_wrs == N * BATCH, "requests");
	CHECK(s1.completions - s0.completions == N * BATCH / 2, "completions");
	CHECK(!b.buf[0], "it carries nothing");
	CHECK(!recv_at(&b, 3, 0, 8), "recv");
	nothing(&b);
	to_err(&b);
	completes(&b, 3, VB_WC_WR_FLUSH_ERR);
	to_err(&a);
	wr[0].next = NULL;
	CHECK(!post(&a, wr), "post in ERR");
	completes(&a, 0, VB_WC_WR_FLUSH_ERR);
	end(&a);
	end(&b);
	nulldev_set_mode(NULLDEV_LOOPBACK);
}

static void events_and_room(void)
{
	struct end a, b;
	struct vb_send_wr wr = op(VB_WR_SEND, 1, NULL);

	nulldev_set_mode(NULLDEV_INSTANT);
	a = make(0, (struct shape){ .sends = 2, .cqe = 2 });
	b = make(1, (struct shape){ 0 });
	join(&a, &b);
	CHECK(!a.ctx->ops.req_notify_cq(a.cq, 0) && !readable(a.ch->fd), "arm");
	CHECK(!post(&a, &wr) && readable(a.ch->fd), "the event");
	CHECK(!post(&a, &wr) && post(&a, &wr) == ENOMEM, "two are all");
	completes(&a, 1, VB_WC_SUCCESS);
	CHECK(!post(&a, &wr), "one again");
	end(&a);
	end(&b);
	nulldev_set_mode(NULLDEV_LOOPBACK);
}

int main(void)
{
	RUN(counters);
	RUN(events_and_room);
	return 0;
}
