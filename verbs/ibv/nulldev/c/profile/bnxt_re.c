/* bnxt_re: Broadcom NetXtreme-E. */
#include <stdio.h>
#include "nd.h"

enum { MAX_SGE = 6, HEAD = 32, DATA = 16 };

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "229.0.154.0");
	a->vendor_id = 0x14e4;
	a->vendor_part_id = 0x1750;
	a->local_ca_ack_delay = 16; /* kernel bnxt_re/ib_verbs.c, BNXT_RE_DEFAULT_ACK_DELAY */
	a->max_sge = a->max_sge_rd = MAX_SGE;
	a->device_cap_flags &= ~VB_DEVICE_XRC;
	x->device_cap_flags_ex = 0;
}

/* Refusals come without errno: __bnxt_re_create_qp returns NULL for whatever bnxt_re_check_qp_limits
 * and bnxt_re_get_sq_slots refuse. The request of the static mode takes 96 bytes inline
 * (providers/bnxt_re/verbs.c, bnxt_re_get_sq_slots). */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;

	(void)ops;
	if (a->qp_type != VB_QPT_RC && a->qp_type != VB_QPT_UD)
		return ND_SILENT;
	if (cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE || cap->max_send_wr > ND_MAX_QP_WR || cap->max_recv_wr > ND_MAX_QP_WR)
		return ND_SILENT;
	if (HEAD + nd_align(cap->max_inline_data, HEAD) > HEAD + MAX_SGE * DATA)
		return ND_SILENT;
	return 0;
}

const struct nd_profile nd_bnxt_re = {
	.name = "bnxt_re",
	.limits = limits,
	.no_mw = true, /* no alloc_mw among the functions of the context */
	.blind = true, /* providers/bnxt_re/verbs.c, bnxt_re_post_send and bnxt_re_post_recv */
	.qp = qp,
	/* create_qp_ex looks at no flags, and sets only these functions' (bnxt_re_set_qp_ex_ops). */
	.bare = ~(uint64_t)(ND_OPS_SEND | ND_OPS_WRITE | ND_OPS_READ | ND_OPS_ATOMIC),
	.no_xrc = true,
};
