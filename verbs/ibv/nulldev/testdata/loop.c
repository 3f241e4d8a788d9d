/* The lower bound for measurements: a loop that posts a list of WRITEs, the last one signaled,
 * and polls its completion, on a device in instant mode. It prints the nanoseconds of "times"
 * rounds of "batch" requests. */
#include <time.h>
#include "test.h"

enum { MOST = 64 };

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv)
{
	long times = argc > 2 ? atol(argv[1]) : 0, batch = argc > 2 ? atol(argv[2]) : 0, start;
	struct vb_send_wr wr[MOST], *bad;
	struct vb_wc wc[MOST];
	struct end a, b;
	struct vb_sge s;

	CHECK(times > 0 && batch > 0 && batch <= MOST, "usage: loop TIMES BATCH");
	nulldev_set_mode(NULLDEV_INSTANT);
	a = make(0, (struct shape){ .sends = MOST });
	b = make(1, (struct shape){ 0 });
	join(&a, &b);
	s = piece(&a, 0, 64);
	for (int i = 0; i < batch; i++) {
		wr[i] = op(VB_WR_RDMA_WRITE, i, &s);
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.buf;
		wr[i].wr.rdma.rkey = b.mr->rkey;
		wr[i].send_flags = i == batch - 1 ? VB_SEND_SIGNALED : 0;
		wr[i].next = i < batch - 1 ? &wr[i + 1] : NULL;
	}
	start = now();
	for (long i = 0; i < times; i++) {
		int n;

		CHECK(!a.ctx->ops.post_send(a.qp, wr, &bad), "post");
		while ((n = a.ctx->ops.poll_cq(a.cq, MOST, wc)) == 0)
			;
		CHECK(n == 1 && wc[0].status == VB_WC_SUCCESS, "poll");
	}
	printf("%ld\n", now() - start);
	end(&a);
	end(&b);
	return 0;
}
