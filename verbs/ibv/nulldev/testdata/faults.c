#include "test.h"

static void errno_of_any_call(void)
{
	struct vb_context *c = open_dev(0);
	struct vb_pd *pd;
	uint64_t before = nulldev_calls("ibv_alloc_pd");
	int f = fault(NULLDEV_ERRNO, "ibv_alloc_pd", 2, 1, ENOMEM, NULLDEV_HOW_ERRNO, 0);

	pd = ibv_alloc_pd(c);
	CHECK(pd && !nulldev_hits(f), "the first succeeds");
	CHECK(!ibv_alloc_pd(c) && errno == ENOMEM && nulldev_hits(f) == 1, "the second fails");
	CHECK(nulldev_calls("ibv_alloc_pd") == before + 2, "calls");
	CHECK(!ibv_dealloc_pd(pd), "dealloc");
	for (int how = 0; how < 3; how++) {
		struct vb_port_attr a;
		int r;

		nulldev_clear_faults();
		fault(NULLDEV_ERRNO, "ibv_query_port", 1, 1, EAGAIN, how, 0);
		errno = 0;
		r = ibv_query_port(c, 1, &a);
		CHECK(r == (how == 0 ? EAGAIN : how == 1 ? -1 : -EAGAIN) && errno == EAGAIN, "how %d: %d, errno %d", how, r, errno);
	}
	nulldev_clear_faults();
	fault(NULLDEV_ERRNO, "", 1, 1, EINTR, 0, 0);
	CHECK(ibv_close_device(c) == EINTR, "the next of all calls");
	CHECK(!ibv_close_device(c), "only the next");
}

static void bad_wr_at_each(void)
{
	for (int at = 0; at < 4; at++) {
		struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
		struct vb_send_wr wr[4], *bad = NULL;
		struct vb_recv_wr r[4] = { { 0 } }, *badr = NULL;

		join(&a, &b);
		for (int i = 0; i < 4; i++) {
			wr[i] = op(VB_WR_RDMA_WRITE, i, NULL);
			wr[i].next = i < 3 ? &wr[i + 1] : NULL;
			r[i].wr_id = i;
			r[i].next = i < 3 ? &r[i + 1] : NULL;
		}
		fault(NULLDEV_BAD_WR, "ibv_post_send", 1, 1, EINVAL, 0, at);
		CHECK(a.ctx->ops.post_send(a.qp, wr, &bad) == EINVAL && bad == &wr[at], "at %d", at);
		for (int i = 0; i < at; i++)
			completes(&a, i, VB_WC_SUCCESS);
		nothing(&a);
		fault(NULLDEV_BAD_WR, "ibv_post_recv", 1, 1, ENOMEM, NULLDEV_HOW_MINUS1, at);
		CHECK(b.ctx->ops.post_recv(b.qp, r, &badr) == -1 && errno == ENOMEM && badr == &r[at], "receives at %d", at);
		to_err(&b);
		for (int i = 0; i < at; i++)
			completes(&b, i, VB_WC_WR_FLUSH_ERR);
		nothing(&b);
		nulldev_clear_faults();
		end(&a);
		end(&b);
	}
}

static void scripted_overrun(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);
	struct vb_wc wc;

	join(&a, &b);
	fault(NULLDEV_OVERRUN, "", 2, 1, 0, 0, 0);
	CHECK(!post(&a, &wr) && !post(&a, &wr), "post");
	completes(&a, 1, VB_WC_SUCCESS);
	CHECK(polled(a.cq, &wc, 1) < 0 && state(&a) == VB_QPS_ERR, "dead");
	end(&a);
	end(&b);
}

static void lost_and_spurious_events(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);
	struct vb_cq *cq;
	void *user;

	join(&a, &b);
	fault(NULLDEV_LOST, "", 1, 1, 0, 0, 0);
	CHECK(!a.ctx->ops.req_notify_cq(a.cq, 0) && !post(&a, &wr) && !readable(a.ch->fd), "the event is lost");
	completes(&a, 1, VB_WC_SUCCESS);
	CHECK(nulldev_spurious_events() == 2 && readable(a.ch->fd) && readable(b.ch->fd), "events for nothing");
	nothing(&a);
	CHECK(!ibv_get_cq_event(a.ch, &cq, &user) && cq == a.cq, "get");
	ibv_ack_cq_events(cq, 1);
	CHECK(!a.ctx->ops.req_notify_cq(a.cq, 0) && !post(&a, &wr) && readable(a.ch->fd), "the next is not lost");
	end(&a);
	end(&b);
}

static void late_flush(void)
{
	for (int polls = 0; polls < 4; polls++) {
		struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
		struct vb_wc wc;

		join(&a, &b);
		fault(NULLDEV_LATE, "", 1, 0, 0, 0, polls);
		CHECK(!recv_at(&b, 6, 0, 0), "recv");
		to_err(&b);
		for (int i = 1; i < (polls ? polls : 5); i++)
			nothing(&b);
		if (!polls) {
			CHECK(!ibv_destroy_qp(b.qp), "destroy");
			b.qp = NULL;
		}
		CHECK(polled(b.cq, &wc, 1) == 1 && wc.wr_id == 6 && wc.status == VB_WC_WR_FLUSH_ERR, "after %d polls", polls);
		nulldev_clear_faults();
		end(&a);
		end(&b);
	}
}

static void stale_completions(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);
	struct vb_wc wc;
	uint32_t num = a.qp->qp_num;

	join(&a, &b);
	fault(NULLDEV_STALE, "", 2, 1, 0, 0, 0);
	CHECK(!post(&a, &wr), "post");
	completes(&a, 1, VB_WC_SUCCESS);
	wr.wr_id = 2;
	CHECK(!post(&a, &wr), "post");
	completes(&a, 1, VB_WC_SUCCESS); /* repeated */
	completes(&a, 2, VB_WC_SUCCESS);
	nothing(&a);
	fault(NULLDEV_LEFTOVER, "", 1, 1, 0, 0, 0);
	CHECK(!ibv_destroy_qp(a.qp), "destroy");
	a.qp = NULL;
	CHECK(polled(a.cq, &wc, 1) == 1 && wc.wr_id == 2 && wc.qp_num == num, "of a queue pair that is gone");
	end(&a);
	end(&b);
}

static void missing_completions(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);

	join(&a, &b);
	fault(NULLDEV_MISSING, "", 1, 1, 0, 0, 0);
	CHECK(!post(&a, &wr), "post");
	nothing(&a);
	wr.wr_id = 2;
	CHECK(!post(&a, &wr), "post");
	completes(&a, 2, VB_WC_SUCCESS);
	end(&a);
	end(&b);
}

static void device_fatal(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);
	struct vb_async_event ev;
	struct vb_wc wc;

	join(&a, &b);
	CHECK(!nulldev_fatal("null0"), "fatal");
	CHECK(!ibv_get_async_event(a.ctx, &ev) && ev.event_type == VB_EVENT_DEVICE_FATAL, "the event");
	ibv_ack_async_event(&ev);
	CHECK(post(&a, &wr) == EIO && polled(a.cq, &wc, 1) == -EIO && !ibv_alloc_pd(a.ctx) && errno == EIO, "EIO from everything");
	CHECK(ibv_get_async_event(b.ctx, &ev) == -1, "the other device lives");
	CHECK(!post(&b, &wr), "but nobody answers it");
	completes(&b, 1, VB_WC_RETRY_EXC_ERR);
	end(&a);
	end(&b);
	CHECK(!nulldev_revive("null0"), "revive");
}

static void wrong_faults(void)
{
	struct nulldev_fault f = { .kind = 99 };

	CHECK(nulldev_add_fault(&f) == -EINVAL, "no such kind");
	f = (struct nulldev_fault){ .kind = NULLDEV_ERRNO };
	CHECK(nulldev_add_fault(&f) == -EINVAL, "an errno of 0");
	f.err = 1;
	memset(f.call, 'x', sizeof(f.call));
	CHECK(nulldev_add_fault(&f) == -EINVAL, "a name without an end");
}

int main(void)
{
	RUN(errno_of_any_call);
	RUN(bad_wr_at_each);
	RUN(scripted_overrun);
	RUN(lost_and_spurious_events);
	RUN(late_flush);
	RUN(stale_completions);
	RUN(missing_completions);
	RUN(device_fatal);
	RUN(wrong_faults);
	return 0;
}
