/* hns: HiSilicon's HIP08, Kunpeng 920. */
#include <stdio.h>
#include "nd.h"

enum { MAX_WR = ND_MAX_QP_WR, MIN_WR = 64 /* HNS_ROCE_V2_MIN_WQE_NUM */, MAX_INLINE = 32 };

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0");
	a->vendor_id = 0x19e5;
	a->vendor_part_id = 0xa222;
	a->max_sge = a->max_sge_rd = ND_MAX_SGE;
	x->device_cap_flags_ex = 0;
}

/* More inline bytes than it has are no error: it grants less (providers/hns/hns_roce_u_verbs.c,
 * get_max_inline_data). The rest is verify_qp_create_cap's and check_qp_create_mask's. */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	struct vb_qp_cap *cap = &a->cap;

	(void)ops;
	if (a->qp_type == VB_QPT_UD)
		return EINVAL;
	if (a->qp_type != VB_QPT_RC && a->qp_type != VB_QPT_XRC_SEND)
		return EOPNOTSUPP;
	if (!cap->max_send_wr || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR ||
	    cap->max_send_sge > ND_MAX_SGE || cap->max_recv_sge > ND_MAX_SGE)
		return EINVAL;
	cap->max_send_wr = nd_pow2(nd_larger(cap->max_send_wr, MIN_WR));
	if (cap->max_recv_wr && !cap->max_recv_sge)
		return EINVAL;
	if (cap->max_recv_wr)
		cap->max_recv_wr = nd_pow2(nd_larger(cap->max_recv_wr, MIN_WR));
	if (cap->max_inline_data)
		cap->max_inline_data = nd_pow2(cap->max_inline_data);
	if (cap->max_inline_data > MAX_INLINE)
		cap->max_inline_data = MAX_INLINE;
	return 0;
}

/* providers/hns/hns_roce_u_hw_v2.c, HNS_SUPPORTED_SEND_OPS_FLAGS_RC_XRC */
static uint64_t ops(vb_enum type)
{
	return type == VB_QPT_UD ? ND_OPS_SEND : ND_OPS_SEND | VB_QP_EX_WITH_SEND_WITH_INV | ND_OPS_WRITE | ND_OPS_READ | ND_OPS_ATOMIC;
}

const struct nd_profile nd_hns = {
	.name = "hns",
	.limits = limits,
	.qp = qp,
	.ops = ops,
	.no_resize = true, /* providers/hns/hns_roce_u.c, hns_common_ops */
};
