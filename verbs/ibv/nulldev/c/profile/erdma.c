/* erdma: Alibaba Cloud's Elastic RDMA. */
#include <stdio.h>
#include "nd.h"

enum { MAX_SEND_SGE = 6, MAX_RECV_SGE = 1, MAX_INLINE = MAX_SEND_SGE * 16 /* ERDMA_MAX_INLINE */ };

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.2.0");
	a->vendor_id = 0x1ded;
	a->vendor_part_id = 0x107f;
	a->max_sge = MAX_RECV_SGE; /* the smaller of both (Linux uverbs_cmd.c, copy_query_dev_fields) */
	a->max_sge_rd = 1;
	a->max_srq = a->max_srq_wr = a->max_srq_sge = 0;
	a->device_cap_flags &= ~(VB_DEVICE_SRQ_RESIZE | VB_DEVICE_XRC | VB_DEVICE_MEM_WINDOW | VB_DEVICE_MEM_WINDOW_TYPE_2B);
	a->max_mw = 0;
	x->device_cap_flags_ex = 0;
}

/* Linux erdma_verbs.c, erdma_qp_validate_cap, erdma_qp_validate_attr */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;

	(void)ops;
	if (cap->max_send_sge > MAX_SEND_SGE || cap->max_recv_sge > MAX_RECV_SGE || cap->max_inline_data > MAX_INLINE ||
	    cap->max_send_wr > ND_MAX_QP_WR || cap->max_recv_wr > ND_MAX_QP_WR || !cap->max_send_wr || !cap->max_recv_wr)
		return EINVAL;
	return a->qp_type != VB_QPT_RC || a->srq ? EOPNOTSUPP : 0;
}

const struct nd_profile nd_erdma = {
	.name = "erdma",
	.limits = limits,
	.no_mw = true, /* no alloc_mw among the functions of the context */
	.blind = true,
	.post_in_err = EIO, /* providers/erdma/erdma_verbs.c, erdma_post_send and erdma_post_recv */
	.qp = qp,
	.ops = nd_no_ops, /* providers/erdma/erdma.c, erdma_context_ops */
	.no_resize = true, /* erdma_context_ops */
};
