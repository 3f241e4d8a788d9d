//go:build linux && cgo && !portable

/* Extended posting (ibv_wr_post(3)): for requests that have no form in ibv_send_wr, and those
 * posted in the same list. It fails as a whole. */
#include "batch.h"

/* More elements than any device accepts in one request. */
enum { MAX_INLINE_BUFS = 64 };

/* The creation flag that an opcode needs; 0 for an opcode that extended posting does not have. */
static uint32_t op_flag(vb_enum opcode)
{
	switch (opcode) {
	case VB_WR_RDMA_WRITE:
		return VB_QP_EX_WITH_RDMA_WRITE;
	case VB_WR_RDMA_WRITE_WITH_IMM:
		return VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	case VB_WR_SEND:
		return VB_QP_EX_WITH_SEND;
	case VB_WR_SEND_WITH_IMM:
		return VB_QP_EX_WITH_SEND_WITH_IMM;
	case VB_WR_RDMA_READ:
		return VB_QP_EX_WITH_RDMA_READ;
	case VB_WR_ATOMIC_CMP_AND_SWP:
		return VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
	case VB_WR_ATOMIC_FETCH_AND_ADD:
		return VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	case VB_WR_LOCAL_INV:
		return VB_QP_EX_WITH_LOCAL_INV;
	case VB_WR_BIND_MW:
		return VB_QP_EX_WITH_BIND_MW;
	case VB_WR_SEND_WITH_INV:
		return VB_QP_EX_WITH_SEND_WITH_INV;
	case VB_WR_FLUSH:
		return VB_QP_EX_WITH_FLUSH;
	case VB_WR_ATOMIC_WRITE:
		return VB_QP_EX_WITH_ATOMIC_WRITE;
	}
	return 0;
}

enum {
	/* The operations that build calls no setter for. */
	OPS_ALONE = VB_QP_EX_WITH_LOCAL_INV | VB_QP_EX_WITH_BIND_MW | VB_QP_EX_WITH_FLUSH | VB_QP_EX_WITH_ATOMIC_WRITE,
};

uint32_t batch_ops(const struct vb_qp_ex *q, uint32_t ops)
{
	if (!q || !q->wr_start || !q->wr_complete)
		return 0;
	if (!q->wr_set_sge || !q->wr_set_sge_list || !q->wr_set_inline_data || !q->wr_set_inline_data_list ||
	    (q->qp_base.qp_type == VB_QPT_UD && !q->wr_set_ud_addr) ||
	    (q->qp_base.qp_type == VB_QPT_XRC_SEND && !q->wr_set_xrc_srqn))
		ops &= OPS_ALONE;
#define CLEAR(fn, bit)                           \
	do {                                     \
		if (!q->fn)                      \
			ops &= ~(uint32_t)(bit); \
	} while (0)
	CLEAR(wr_rdma_write, VB_QP_EX_WITH_RDMA_WRITE);
	CLEAR(wr_rdma_write_imm, VB_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
	CLEAR(wr_send, VB_QP_EX_WITH_SEND);
	CLEAR(wr_send_imm, VB_QP_EX_WITH_SEND_WITH_IMM);
	CLEAR(wr_send_inv, VB_QP_EX_WITH_SEND_WITH_INV);
	CLEAR(wr_rdma_read, VB_QP_EX_WITH_RDMA_READ);
	CLEAR(wr_atomic_cmp_swp, VB_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
	CLEAR(wr_atomic_fetch_add, VB_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	CLEAR(wr_local_inv, VB_QP_EX_WITH_LOCAL_INV);
	CLEAR(wr_bind_mw, VB_QP_EX_WITH_BIND_MW);
	CLEAR(wr_flush, VB_QP_EX_WITH_FLUSH);
	CLEAR(wr_atomic_write, VB_QP_EX_WITH_ATOMIC_WRITE);
#undef CLEAR
	return ops;
}

static int inlined(const struct vb_send_wr *wr)
{
	return (wr->send_flags & VB_SEND_INLINE) != 0;
}

static void set_data(struct vb_qp_ex *q, const struct vb_send_wr *wr)
{
	const struct vb_sge *s = wr->sg_list;
	struct vb_data_buf buf[MAX_INLINE_BUFS];
	int i;

	if (!inlined(wr)) {
		if (wr->num_sge == 1)
			q->wr_set_sge(q, s->lkey, s->addr, s->length);
		else
			q->wr_set_sge_list(q, (size_t)wr->num_sge, s);
		return;
	}
	if (wr->num_sge == 1) {
		q->wr_set_inline_data(q, (void *)(uintptr_t)s->addr, s->length);
		return;
	}
	for (i = 0; i < wr->num_sge; i++)
		buf[i] = (struct vb_data_buf){(void *)(uintptr_t)s[i].addr, s[i].length};
	q->wr_set_inline_data_list(q, (size_t)wr->num_sge, buf);
}

/* Builds one request between wr_start and wr_complete. */
static void build(struct vb_qp_ex *q, struct vb_send_wr *wr)
{
	uint64_t levels = wr->wr.words[2];

	q->wr_id = wr->wr_id;
	/* INLINE too, although the setter implies it: rxe's setter copies the data and leaves the
	 * flag to the caller (wr_set_inline_data, providers/rxe/rxe.c). */
	q->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case VB_WR_RDMA_WRITE:
		q->wr_rdma_write(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case VB_WR_RDMA_WRITE_WITH_IMM:
		q->wr_rdma_write_imm(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case VB_WR_SEND:
		q->wr_send(q);
		break;
	case VB_WR_SEND_WITH_IMM:
		q->wr_send_imm(q, wr->imm_data);
		break;
	case VB_WR_SEND_WITH_INV:
		q->wr_send_inv(q, wr->imm_data);
		break;
	case VB_WR_RDMA_READ:
		q->wr_rdma_read(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case VB_WR_ATOMIC_CMP_AND_SWP:
		q->wr_atomic_cmp_swp(q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				     wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case VB_WR_ATOMIC_FETCH_AND_ADD:
		q->wr_atomic_fetch_add(q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				       wr->wr.atomic.compare_add);
		break;
	case VB_WR_LOCAL_INV:
		q->wr_local_inv(q, wr->imm_data);
		return;
	case VB_WR_BIND_MW:
		q->wr_bind_mw(q, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return;
	case VB_WR_FLUSH: /* verbs.SendWR.SetFlush: length, levels, rkey */
		q->wr_flush(q, wr->wr.atomic.rkey, wr->wr.words[0], (size_t)wr->wr.words[1],
			    (uint8_t)levels, (uint8_t)(levels >> 8));
		return;
	case VB_WR_ATOMIC_WRITE: /* verbs.SendWR.SetAtomicWrite: the 8 bytes, rkey */
		q->wr_atomic_write(q, wr->wr.atomic.rkey, wr->wr.words[0], &wr->wr.words[1]);
		return;
	}
	if (q->qp_base.qp_type == VB_QPT_UD)
		q->wr_set_ud_addr(q, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	if (q->qp_base.qp_type == VB_QPT_XRC_SEND)
		q->wr_set_xrc_srqn(q, wr->qp_type.xrc.remote_srqn);
	set_data(q, wr);
}

int batch_post_ex(struct vb_qp_ex *q, uint32_t ops, struct vb_send_wr *wr)
{
	struct vb_send_wr *w;

	/* A missing function must not be called, and wr_abort is no better than not starting:
	 * everything is checked first. */
	for (w = wr; w; w = w->next) {
		uint32_t flag = op_flag(w->opcode);
		if (!q || flag == 0 || (ops & flag) == 0)
			return EOPNOTSUPP;
		if (w->num_sge < 0 || (inlined(w) && w->num_sge > MAX_INLINE_BUFS))
			return EINVAL;
	}
	q->wr_start(q);
	for (w = wr; w; w = w->next)
		build(q, w);
	return shim_errno(q->wr_complete(q));
}
