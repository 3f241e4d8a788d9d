/* Extended posting: ibv_wr_start, a function for each request and each part of it,
 * ibv_wr_complete. The requests are collected and posted by ibv_wr_complete, all or none. */
#include "nd.h"

struct nd_posting {
	struct vb_send_wr *wrs; /* sq_size elements; sg_list and next as in a list */
	struct vb_sge *sges;	/* ND_MAX_SGE for each request */
	uint8_t *inl;		/* max_inline_data for each request */
	uint32_t n, most;
	int err;
};

static struct nd_qp *of(struct vb_qp_ex *q) { return (struct nd_qp *)q; }

/* begin adds a request. An excess request is reported at the end, like all other errors. */
static struct vb_send_wr *begin(struct vb_qp_ex *q, int op)
{
	static __thread struct vb_send_wr spill;
	struct nd_posting *p = of(q)->ex;
	struct vb_send_wr *wr = &spill;

	if (p->n < p->most) {
		wr = &p->wrs[p->n];
		if (p->n)
			wr[-1].next = wr;
		p->n++;
	} else {
		p->err = ENOMEM;
	}
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = q->wr_id;
	wr->send_flags = q->wr_flags & ~(unsigned)VB_SEND_INLINE;
	wr->opcode = op;
	return wr;
}

static void wr_send(struct vb_qp_ex *q) { begin(q, VB_WR_SEND); }
static void wr_send_imm(struct vb_qp_ex *q, uint32_t imm) { begin(q, VB_WR_SEND_WITH_IMM)->imm_data = imm; }
static void wr_send_inv(struct vb_qp_ex *q, uint32_t key) { begin(q, VB_WR_SEND_WITH_INV)->imm_data = key; }
static void wr_local_inv(struct vb_qp_ex *q, uint32_t key) { begin(q, VB_WR_LOCAL_INV)->imm_data = key; }

static struct vb_send_wr *rdma(struct vb_qp_ex *q, int op, uint32_t rkey, uint64_t addr)
{
	struct vb_send_wr *wr = begin(q, op);

	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
	return wr;
}

static void wr_rdma_write(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr) { rdma(q, VB_WR_RDMA_WRITE, rkey, addr); }
static void wr_rdma_read(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr) { rdma(q, VB_WR_RDMA_READ, rkey, addr); }
static void wr_rdma_write_imm(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr, uint32_t imm)
{
	rdma(q, VB_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm_data = imm;
}

/* atomic serves all operations with operands: FLUSH and ATOMIC_WRITE are stored in the form of
 * verbs.SendWR. */
static void atomic(struct vb_qp_ex *q, int op, uint32_t rkey, uint64_t addr, uint64_t a, uint64_t b)
{
	struct vb_send_wr *wr = begin(q, op);

	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = a;
	wr->wr.atomic.swap = b;
	wr->wr.atomic.rkey = rkey;
}

static void wr_cmp_swp(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	atomic(q, VB_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_fetch_add(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr, uint64_t add)
{
	atomic(q, VB_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_atomic_write(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr, const void *bytes)
{
	uint64_t v;

	memcpy(&v, bytes, sizeof(v));
	atomic(q, VB_WR_ATOMIC_WRITE, rkey, addr, v, 0);
}

static void wr_flush(struct vb_qp_ex *q, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level)
{
	atomic(q, VB_WR_FLUSH, rkey, addr, len, type | (uint64_t)level << 8);
}

static void wr_bind_mw(struct vb_qp_ex *q, struct vb_mw *mw, uint32_t rkey, const struct vb_mw_bind_info *info)
{
	struct vb_send_wr *wr = begin(q, VB_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

/* last returns the request that the setters apply to. */
static struct vb_send_wr *last(struct vb_qp_ex *q)
{
	struct nd_posting *p = of(q)->ex;

	if (!p->n || p->err)
		return NULL;
	return &p->wrs[p->n - 1];
}

static void wr_set_ud_addr(struct vb_qp_ex *q, struct vb_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct vb_send_wr *wr = last(q);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct vb_qp_ex *q, uint32_t num)
{
	struct vb_send_wr *wr = last(q);

	if (wr)
		wr->qp_type.xrc.remote_srqn = num;
}

static void wr_set_sge_list(struct vb_qp_ex *q, size_t n, const struct vb_sge *list)
{
	struct nd_posting *p = of(q)->ex;
	struct vb_send_wr *wr = last(q);

	if (!wr)
		return;
	if (n > of(q)->cap.max_send_sge) {
		p->err = EINVAL;
		return;
	}
	wr->sg_list = p->sges + (size_t)(p->n - 1) * ND_MAX_SGE;
	wr->num_sge = n;
	memcpy(wr->sg_list, list, n * sizeof(*list));
}

static void wr_set_sge(struct vb_qp_ex *q, uint32_t lkey, uint64_t addr, uint32_t len)
{
	struct vb_sge s = { .addr = addr, .length = len, .lkey = lkey };

	wr_set_sge_list(q, 1, &s);
}

static void wr_set_inline_data_list(struct vb_qp_ex *q, size_t n, const struct vb_data_buf *list)
{
	struct nd_posting *p = of(q)->ex;
	struct vb_send_wr *wr = last(q);
	size_t most = of(q)->cap.max_inline_data, len = 0;
	uint8_t *to;

	if (!wr)
		return;
	to = p->inl + (p->n - 1) * most;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > most - len) {
			p->err = EINVAL;
			return;
		}
		memcpy(to + len, list[i].addr, list[i].length);
		len += list[i].length;
	}
	wr->send_flags |= VB_SEND_INLINE;
	wr->sg_list = p->sges + (size_t)(p->n - 1) * ND_MAX_SGE;
	wr->sg_list[0] = (struct vb_sge){ .addr = (uintptr_t)to, .length = len };
	wr->num_sge = 1;
}

static void wr_set_inline_data(struct vb_qp_ex *q, void *addr, size_t len)
{
	struct vb_data_buf b = { .addr = addr, .length = len };

	wr_set_inline_data_list(q, 1, &b);
}

static void wr_start(struct vb_qp_ex *q)
{
	of(q)->ex->n = 0;
	of(q)->ex->err = 0;
}

static void wr_abort(struct vb_qp_ex *q) { wr_start(q); }

/* check reports whether all requests of a posting can be accepted. */
static int check(struct nd_qp *qp)
{
	struct nd_posting *p = qp->ex;
	uint64_t len;
	int err;

	if (p->err)
		return p->err;
	err = nd_send_state(qp);
	if (err)
		return err;
	for (uint32_t i = 0; i < p->n; i++) {
		err = nd_send_valid(qp, &p->wrs[i], true, &len);
		if (err)
			return err;
	}
	return p->n > nd_send_room(qp) ? ENOMEM : 0;
}

static int wr_complete(struct vb_qp_ex *q)
{
	struct nd_qp *qp = of(q);
	struct nd_posting *p = qp->ex;
	struct vb_send_wr *bad;
	uint64_t len;
	int err, fault;

	ND_CALL("ibv_wr_complete", qp->ctx->dev);
	if (nd_bad_at("ibv_wr_complete", &fault) >= 0)
		return fault; /* without a bad_wr: the whole posting */
	if (qp->instant) {
		err = check(qp);
		return err || !p->n ? err : nd_instant_send(qp, p->wrs, &bad, -1, 0);
	}
	nd_td_enter(qp->td);
	nd_lock();
	err = check(qp);
	if (!err && p->n) {
		for (uint32_t i = 0; i < p->n; i++) {
			nd_send_valid(qp, &p->wrs[i], true, &len);
			nd_send_take(qp, &p->wrs[i], len);
		}
		qp->n_sends++;
		qp->n_doorbells++;
		qp->n_send_wrs += p->n;
		nd_progress(qp);
	}
	nd_unlock();
	nd_td_leave(qp->td);
	return err;
}

ND_EXPORT struct vb_qp_ex *ibv_qp_to_qp_ex(struct vb_qp *q)
{
	struct nd_qp *qp = (struct nd_qp *)q;

	return qp->ex ? &qp->qp : NULL;
}

/* nd_qp_ex_init sets the functions of the requested operations. Without memory for a posting
 * there is no extended posting. */
void nd_qp_ex_init(struct nd_qp *qp, uint64_t ops)
{
	struct vb_qp_ex *q = &qp->qp;
	struct nd_posting *p;

	if (!ops)
		return;
	ops &= ~qp->ctx->profile->bare;
	p = calloc(1, sizeof(*p));
	if (!p)
		return;
	p->most = qp->sq_size;
	p->wrs = calloc(p->most ? p->most : 1, sizeof(*p->wrs));
	p->sges = calloc((size_t)(p->most ? p->most : 1) * ND_MAX_SGE, sizeof(*p->sges));
	p->inl = calloc(p->most ? p->most : 1, qp->cap.max_inline_data ? qp->cap.max_inline_data : 1);
	qp->ex = p;
	if (!p->wrs || !p->sges || !p->inl) {
		nd_qp_ex_end(qp);
		return;
	}
	q->wr_start = wr_start;
	q->wr_complete = wr_complete;
	q->wr_abort = wr_abort;
	q->wr_set_ud_addr = wr_set_ud_addr;
	q->wr_set_xrc_srqn = qp->ctx->profile->no_xrc ? NULL : wr_set_xrc_srqn;
	q->wr_set_inline_data = wr_set_inline_data;
	q->wr_set_inline_data_list = wr_set_inline_data_list;
	q->wr_set_sge = wr_set_sge;
	q->wr_set_sge_list = wr_set_sge_list;
#define OP(bit, member, fn) do { if (ops & (bit)) q->member = fn; } while (0)
	OP(VB_QP_EX_WITH_RDMA_WRITE, wr_rdma_write, wr_rdma_write);
	OP(VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm, wr_rdma_write_imm);
	OP(VB_QP_EX_WITH_SEND, wr_send, wr_send);
	OP(VB_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm, wr_send_imm);
	OP(VB_QP_EX_WITH_SEND_WITH_INV, wr_send_inv, wr_send_inv);
	OP(VB_QP_EX_WITH_RDMA_READ, wr_rdma_read, wr_rdma_read);
	OP(VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp, wr_cmp_swp);
	OP(VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add, wr_fetch_add);
	OP(VB_QP_EX_WITH_LOCAL_INV, wr_local_inv, wr_local_inv);
	OP(VB_QP_EX_WITH_BIND_MW, wr_bind_mw, wr_bind_mw);
	OP(VB_QP_EX_WITH_FLUSH, wr_flush, wr_flush);
	OP(VB_QP_EX_WITH_ATOMIC_WRITE, wr_atomic_write, wr_atomic_write);
#undef OP
}

void nd_qp_ex_end(struct nd_qp *qp)
{
	if (!qp->ex)
		return;
	free(qp->ex->wrs);
	free(qp->ex->sges);
	free(qp->ex->inl);
	free(qp->ex);
	qp->ex = NULL;
}
