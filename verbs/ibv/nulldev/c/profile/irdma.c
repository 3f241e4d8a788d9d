/* irdma as RoCE: Intel E810. */
#include <stdio.h>
#include "nd.h"

/* providers/irdma/user.h and defs.h; the kernel reports them (alloc_ucontext) */
enum {
	MAX_SGE = 13,		/* IRDMA_MAX_WQ_FRAGMENT_COUNT */
	MAX_INLINE = 101,	/* IRDMA_MAX_INLINE_DATA_SIZE */
	MAX_QUANTA = 1 << 15,	/* max_hw_wq_quanta, max_hw_rq_quanta */
	MIN_QUANTA = 8,		/* min_hw_wq_size */
	SQ_RSVD = 258, RQ_RSVD = 1,
	MAX_QP_WR = (MAX_QUANTA - SQ_RSVD) / 8, /* Linux irdma, IRDMA_MAX_QP_WRS: as if all requests had the most quanta */
};

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "1.71");
	a->vendor_id = 0x8086;
	a->vendor_part_id = 0x1593;
	a->max_sge = a->max_sge_rd = MAX_SGE;
	a->max_qp_wr = MAX_QP_WR;
	a->device_cap_flags &= ~VB_DEVICE_XRC;
	x->device_cap_flags_ex = 0;
}

/* shift is the size of a request: 2^shift quanta (providers/irdma/uk.c, irdma_get_wqe_shift). */
static int shift(uint32_t sges, uint32_t inl)
{
	if (sges <= 1 && inl <= 8)
		return 0;
	if (sges < 4 && inl <= 39)
		return 1;
	return sges < 8 && inl <= MAX_INLINE ? 2 : 3;
}

/* providers/irdma/uverbs.c, irdma_ucreate_qp; uk.c, irdma_get_sqdepth */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	struct vb_qp_cap *cap = &a->cap;
	uint32_t sq, rq, sq_shift, rq_shift;

	(void)ops;
	if (a->qp_type != VB_QPT_RC && a->qp_type != VB_QPT_UD)
		return EOPNOTSUPP;
	if (a->srq) {
		cap->max_recv_sge = MAX_SGE;
		cap->max_recv_wr = 1;
	}
	if (cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE ||
	    cap->max_send_wr > MAX_QUANTA || cap->max_recv_wr > MAX_QUANTA)
		return EINVAL;
	sq_shift = shift(cap->max_send_sge + 1, cap->max_inline_data); /* one for immediate data */
	rq_shift = shift(cap->max_recv_sge, 0);
	sq = nd_larger(nd_pow2((cap->max_send_wr << sq_shift) + SQ_RSVD), MIN_QUANTA << sq_shift);
	rq = nd_larger(nd_pow2((cap->max_recv_wr << rq_shift) + RQ_RSVD), MIN_QUANTA << rq_shift);
	if (sq > MAX_QUANTA || rq > MAX_QUANTA)
		return EINVAL;
	cap->max_send_wr = (sq - SQ_RSVD) >> sq_shift;
	cap->max_recv_wr = (rq - RQ_RSVD) >> rq_shift;
	return 0;
}

const struct nd_profile nd_irdma = {
	.name = "irdma",
	.limits = limits,
	.quanta = true, /* providers/irdma/uk.c, irdma_qp_get_next_send_wqe */
	.blind = true, /* providers/irdma/uverbs.c, irdma_upost_send and irdma_upost_recv */
	.qp = qp,
	.ops = nd_no_ops, /* providers/irdma/umain.c, irdma_uctx_ops */
};
