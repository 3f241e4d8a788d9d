#include "test.h"

static void pingpong(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_sge s;
	struct vb_send_wr wr;

	join(&a, &b);
	for (int i = 0; i < 1000; i++) {
		struct end *from = i % 2 ? &b : &a, *to = i % 2 ? &a : &b;

		CHECK(!recv_at(to, i, 512, 100), "recv");
		snprintf((char *)from->buf, 100, "message %d", i);
		s = piece(from, 0, 100);
		wr = op(VB_WR_SEND_WITH_IMM, i + 1000, &s);
		wr.imm_data = i;
		CHECK(!post(from, &wr), "send");
		CHECK(completes(from, i + 1000, VB_WC_SUCCESS).opcode == VB_WC_SEND, "opcode");
		struct vb_wc wc = completes(to, i, VB_WC_SUCCESS);
		CHECK(wc.opcode == VB_WC_RECV && wc.byte_len == 100 && (wc.wc_flags & VB_WC_WITH_IMM) && wc.imm_data == (uint32_t)i, "the receive");
		CHECK(!memcmp(to->buf + 512, from->buf, 100), "the bytes");
	}
	end(&a);
	end(&b);
}

static void one_sided(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(0, (struct shape){ 0 });
	struct vb_sge s = piece(&a, 0, 64);
	struct vb_send_wr wr;

	join(&a, &b);
	memset(a.buf, 7, 64);
	wr = op(VB_WR_RDMA_WRITE, 1, &s);
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf + 128;
	wr.wr.rdma.rkey = b.mr->rkey;
	CHECK(!post(&a, &wr), "write");
	completes(&a, 1, VB_WC_SUCCESS);
	CHECK(!memcmp(b.buf + 128, a.buf, 64) && !b.buf[127] && !b.buf[192], "the written bytes");
	memset(b.buf + 128, 9, 64);
	wr.opcode = VB_WR_RDMA_READ;
	CHECK(!post(&a, &wr), "read");
	completes(&a, 1, VB_WC_SUCCESS);
	CHECK(a.buf[0] == 9 && a.buf[63] == 9 && !a.buf[64], "the read bytes");
	*(uint64_t *)(b.buf + 256) = 40;
	s = piece(&a, 0, 8);
	wr = op(VB_WR_ATOMIC_FETCH_AND_ADD, 2, &s);
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf + 256;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 2;
	CHECK(!post(&a, &wr), "add");
	completes(&a, 2, VB_WC_SUCCESS);
	CHECK(*(uint64_t *)a.buf == 40 && *(uint64_t *)(b.buf + 256) == 42, "the sum");
	wr.opcode = VB_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 1;
	CHECK(!post(&a, &wr), "swap");
	completes(&a, 2, VB_WC_SUCCESS);
	CHECK(*(uint64_t *)a.buf == 42 && *(uint64_t *)(b.buf + 256) == 1, "the swapped");
	end(&a);
	end(&b);
}

/* A wrong key, a range beyond the region, a missing permission. */
static void refused(void)
{
	for (int i = 0; i < 3; i++) {
		struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
		struct vb_mr *narrow = ibv_reg_mr(b.pd, b.buf, BUF, VB_ACCESS_LOCAL_WRITE);
		struct vb_sge s = piece(&a, 0, 64);
		struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, &s);
		struct vb_async_event ev;

		join(&a, &b);
		wr.wr.rdma.remote_addr = (uintptr_t)b.buf + (i == 1 ? BUF - 63 : 0);
		wr.wr.rdma.rkey = i == 0 ? b.mr->rkey + 1 : i == 1 ? b.mr->rkey : narrow->rkey;
		CHECK(!recv_at(&b, 77, 0, 8) && !recv_at(&b, 78, 0, 8), "recv");
		CHECK(!post(&a, &wr), "write");
		wr = op(VB_WR_SEND, 2, NULL);
		completes(&a, 1, VB_WC_REM_ACCESS_ERR);
		CHECK(!post(&a, &wr), "posting in ERR");
		completes(&a, 2, VB_WC_WR_FLUSH_ERR);
		completes(&b, 77, VB_WC_WR_FLUSH_ERR);
		completes(&b, 78, VB_WC_WR_FLUSH_ERR);
		CHECK(state(&a) == VB_QPS_ERR && state(&b) == VB_QPS_ERR, "states");
		CHECK(!ibv_get_async_event(b.ctx, &ev) && ev.event_type == VB_EVENT_QP_ACCESS_ERR && ev.element.qp == b.qp, "the event");
		ibv_ack_async_event(&ev);
		CHECK(!b.buf[BUF - 1], "nothing was written");
		CHECK(!ibv_dereg_mr(narrow), "dereg");
		end(&a);
		end(&b);
	}
}

/* A send waits for its receive; with finite retries it does not wait forever. */
static void rnr(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_sge s = piece(&a, 0, 8);
	struct vb_send_wr wr = op(VB_WR_SEND, 1, &s);
	struct vb_qp_attr at = { .qp_state = VB_QPS_RTS };

	join(&a, &b);
	CHECK(!post(&a, &wr), "send");
	nothing(&a);
	CHECK(!recv_at(&b, 9, 0, 8), "recv");
	completes(&b, 9, VB_WC_SUCCESS);
	completes(&a, 1, VB_WC_SUCCESS);
	(void)at;
	/* the peer fails: the retries end the wait */
	to_err(&b);
	CHECK(!post(&a, &wr), "send to nobody");
	completes(&a, 1, VB_WC_RETRY_EXC_ERR);
	CHECK(state(&a) == VB_QPS_ERR, "state");
	end(&a);
	end(&b);
}

static void notification(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_SEND, 1, NULL);
	struct vb_cq *cq;
	void *user;

	join(&a, &b);
	for (int i = 0; i < 4; i++)
		CHECK(!recv_at(&b, i, 0, 0), "recv");
	CHECK(!b.ctx->ops.req_notify_cq(b.cq, 1), "arm for solicited");
	CHECK(!post(&a, &wr), "send");
	CHECK(!readable(b.ch->fd), "an unsolicited completion raised a solicited event");
	wr.send_flags |= VB_SEND_SOLICITED;
	CHECK(!post(&a, &wr) && !post(&a, &wr), "send");
	CHECK(readable(b.ch->fd) && !ibv_get_cq_event(b.ch, &cq, &user) && cq == b.cq, "the event");
	CHECK(ibv_get_cq_event(b.ch, &cq, &user) == -1 && errno == EAGAIN && !readable(b.ch->fd), "the arming is for one");
	CHECK(stats().unacked == 1, "one event is not acknowledged");
	ibv_ack_cq_events(cq, 1);
	CHECK(!b.ctx->ops.req_notify_cq(b.cq, 0), "arm");
	CHECK(!post(&a, &wr), "send");
	CHECK(readable(b.ch->fd), "any completion raises it");
	end(&a); /* the event that was not taken is dropped with its queue */
	end(&b);
}

static void datagrams(void)
{
	struct end a = make(0, (struct shape){ .type = VB_QPT_UD }), b = make(1, (struct shape){ .type = VB_QPT_UD });
	struct vb_ah_attr at = { .grh = { .dgid = b.gid }, .is_global = 1, .port_num = 1 };
	struct vb_ah *ah = ibv_create_ah(a.pd, &at), *group;
	struct vb_sge s = piece(&a, 0, 100);
	struct vb_send_wr wr = op(VB_WR_SEND, 1, &s);
	struct vb_wc wc;

	CHECK(ah, "%s", strerror(errno));
	join(&a, &b);
	memset(a.buf, 5, 100);
	CHECK(!recv_at(&b, 2, 0, 256), "recv");
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = 0x11111112;
	CHECK(!post(&a, &wr), "send with a wrong key");
	completes(&a, 1, VB_WC_SUCCESS);
	nothing(&b);
	wr.wr.ud.remote_qkey = 0x11111111;
	CHECK(!post(&a, &wr), "send");
	completes(&a, 1, VB_WC_SUCCESS);
	wc = completes(&b, 2, VB_WC_SUCCESS);
	CHECK(wc.byte_len == 140 && (wc.wc_flags & VB_WC_GRH) && wc.src_qp == a.qp->qp_num, "byte_len %d", wc.byte_len);
	CHECK(b.buf[40] == 5 && b.buf[139] == 5 && !b.buf[140] && !memcmp(b.buf + 32, a.gid.raw + 12, 4) && !memcmp(b.buf + 36, b.gid.raw + 12, 4), "header and payload");
	/* a group */
	at.grh.dgid.raw[12] = 224;
	CHECK(!ibv_attach_mcast(b.qp, &at.grh.dgid, 0) && ibv_destroy_qp(b.qp) == EBUSY, "attached");
	group = ibv_create_ah(a.pd, &at);
	CHECK(!recv_at(&b, 3, 0, 256), "recv");
	wr.wr.ud.ah = group;
	wr.wr.ud.remote_qpn = 0xffffff;
	CHECK(!post(&a, &wr), "send to the group");
	completes(&a, 1, VB_WC_SUCCESS);
	completes(&b, 3, VB_WC_SUCCESS);
	CHECK(!ibv_detach_mcast(b.qp, &at.grh.dgid, 0) && ibv_detach_mcast(b.qp, &at.grh.dgid, 0) == EINVAL, "detach");
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_ah(group), "destroy_ah");
	end(&a);
	end(&b);
}

static void shared_receives(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ .srq = 8 });
	struct vb_send_wr wr = op(VB_WR_SEND, 1, NULL);
	struct vb_async_event ev;

	join(&a, &b);
	CHECK(!recv_at(&b, 5, 0, 0) && !post(&a, &wr), "one");
	completes(&b, 5, VB_WC_SUCCESS);
	to_err(&b);
	CHECK(!ibv_get_async_event(b.ctx, &ev) && ev.event_type == VB_EVENT_QP_LAST_WQE_REACHED, "LAST_WQE_REACHED");
	ibv_ack_async_event(&ev);
	CHECK(ibv_destroy_srq(b.srq) == EBUSY, "a shared queue in use");
	end(&a);
	end(&b);
}

static void extended(void)
{
	uint64_t ops = (1 << 13) - 1 - VB_QP_EX_WITH_TSO;
	struct end a = make(0, (struct shape){ .ops = ops, .sends = 4, .inl = 64 }), b = make(1, (struct shape){ 0 });
	struct vb_qp_ex *q = ibv_qp_to_qp_ex(a.qp);
	uint64_t v = 0x1122334455667788;

	CHECK(q, "no extended queue pair");
	join(&a, &b);
	CHECK(!recv_at(&b, 9, 0, 64), "recv");
	q->wr_start(q);
	q->wr_id = 1;
	q->wr_flags = 0;
	q->wr_atomic_write(q, b.mr->rkey, (uintptr_t)b.buf + 128, &v);
	q->wr_id = 2;
	q->wr_flush(q, b.mr->rkey, (uintptr_t)b.buf, 256, VB_FLUSH_GLOBAL, VB_FLUSH_RANGE);
	q->wr_id = 3;
	q->wr_flags = VB_SEND_SIGNALED;
	q->wr_send(q);
	q->wr_set_inline_data(q, "inline", 7);
	CHECK(!q->wr_complete(q), "complete");
	completes(&a, 3, VB_WC_SUCCESS);
	CHECK(completes(&b, 9, VB_WC_SUCCESS).byte_len == 7 && !strcmp((char *)b.buf, "inline"), "the message");
	CHECK(*(uint64_t *)(b.buf + 128) == v, "the atomic write");
	/* one too many: none is posted */
	q->wr_start(q);
	for (int i = 0; i < 5; i++)
		q->wr_rdma_write(q, b.mr->rkey, (uintptr_t)b.buf);
	CHECK(q->wr_complete(q) == ENOMEM, "five of four");
	nothing(&a);
	end(&a);
	end(&b);
}

static void overrun(void)
{
	struct end a = make(0, (struct shape){ 0 }), b = make(1, (struct shape){ .cqe = 2 });
	struct vb_send_wr wr = op(VB_WR_SEND, 1, NULL);
	struct vb_async_event ev;
	struct vb_wc wc[4];

	join(&a, &b);
	for (int i = 0; i < 4; i++)
		CHECK(!recv_at(&b, i, 0, 0), "recv");
	for (int i = 0; i < 3; i++)
		CHECK(!post(&a, &wr), "send");
	CHECK(!ibv_get_async_event(b.ctx, &ev) && ev.event_type == VB_EVENT_CQ_ERR && ev.element.cq == b.cq, "CQ_ERR");
	ibv_ack_async_event(&ev);
	CHECK(state(&b) == VB_QPS_ERR, "its queue pair is dead");
	CHECK(polled(b.cq, wc, 4) == 2 && polled(b.cq, wc, 4) < 0, "what it holds, and then an error");
	end(&a);
	end(&b);
}

/* Slots are freed when a completion is polled, for all requests up to it. */
static void slots(void)
{
	struct end a = make(0, (struct shape){ .sends = 4 }), b = make(1, (struct shape){ 0 });
	struct vb_send_wr wr = op(VB_WR_RDMA_WRITE, 1, NULL);

	join(&a, &b);
	wr.send_flags = 0;
	for (int i = 0; i < 3; i++)
		CHECK(!post(&a, &wr), "post");
	wr.send_flags = VB_SEND_SIGNALED;
	CHECK(!post(&a, &wr) && post(&a, &wr) == ENOMEM, "four are all");
	completes(&a, 1, VB_WC_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK(!post(&a, &wr), "the room of all four is back");
	end(&a);
	end(&b);
}

int main(void)
{
	RUN(pingpong);
	RUN(one_sided);
	RUN(refused);
	RUN(rnr);
	RUN(notification);
	RUN(datagrams);
	RUN(shared_receives);
	RUN(extended);
	RUN(overrun);
	RUN(slots);
	return 0;
}
