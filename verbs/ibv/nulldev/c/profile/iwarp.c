/* irdma as iWARP: Intel E810 and X722. The limits are those of X722, the smaller ones. */
#include <stdio.h>
#include "nd.h"

/* providers/irdma/i40iw_hw.h */
enum {
	MAX_SGE = 3,		/* I40IW_MAX_WQ_FRAGMENT_COUNT */
	MAX_INLINE = 48,	/* I40IW_MAX_INLINE_DATA_SIZE */
	MAX_SQ_QUANTA = 2048, MAX_RQ_QUANTA = 16384,
	QUANTA_PER_WR = 2,	/* I40IW_MAX_QUANTA_PER_WR */
	MIN_SQ = 4, SQ_RSVD = 258, RQ_RSVD = 1,
	RQ_SHIFT = 2,		/* I40IW_MAX_RQ_WQE_SHIFT, whatever the elements */
};

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "1.71");
	a->vendor_id = 0x8086;
	a->vendor_part_id = 0x37d2;
	a->max_sge = MAX_SGE;
	a->max_sge_rd = 1; /* I40IW_MAX_SGE_RD */
	a->atomic_cap = VB_ATOMIC_NONE;
	a->max_qp_wr = (MAX_SQ_QUANTA - SQ_RSVD) / QUANTA_PER_WR;
	a->device_cap_flags &= ~VB_DEVICE_XRC;
	a->max_srq = a->max_srq_wr = a->max_srq_sge = 0;
	a->device_cap_flags &= ~VB_DEVICE_SRQ_RESIZE;
	x->device_cap_flags_ex = 0;
}

/* providers/irdma/uverbs.c, irdma_ucreate_qp; uk.c, irdma_get_wqe_shift for generation 1 */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	struct vb_qp_cap *cap = &a->cap;
	uint32_t sq, rq, shift;

	(void)ops;
	if (a->qp_type != VB_QPT_RC || a->srq)
		return EOPNOTSUPP;
	if (cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE ||
	    cap->max_send_wr > MAX_SQ_QUANTA || cap->max_recv_wr > MAX_RQ_QUANTA)
		return EINVAL;
	shift = cap->max_send_sge > 1 || cap->max_inline_data > 16;
	sq = nd_larger(nd_pow2((cap->max_send_wr << shift) + SQ_RSVD), MIN_SQ << shift);
	rq = nd_larger(nd_pow2((cap->max_recv_wr << RQ_SHIFT) + RQ_RSVD), MIN_SQ << RQ_SHIFT);
	if (sq > MAX_SQ_QUANTA || rq > MAX_RQ_QUANTA)
		return EINVAL;
	cap->max_send_wr = (sq - SQ_RSVD) >> shift;
	cap->max_recv_wr = (rq - RQ_RSVD) >> RQ_SHIFT;
	return 0;
}

const struct nd_profile nd_iwarp = {
	.name = "iwarp",
	.tos_unsent = true, /* MPA's request has none (RFC 5044, 7.1); a listener's holds (cma.c, cma_iw_listen) */
	.node = VB_NODE_RNIC,
	.transport = VB_TRANSPORT_IWARP,
	.limits = limits,
	.quanta = true, /* providers/irdma/uk.c, irdma_qp_get_next_send_wqe */
	.blind = true, /* providers/irdma/uverbs.c, irdma_upost_send and irdma_upost_recv */
	.qp = qp,
	.ops = nd_no_ops, /* providers/irdma/umain.c, irdma_uctx_ops */
	.no_resize = true, /* X722: irdma_uresize_cq needs IRDMA_FEATURE_CQ_RESIZE */
};
