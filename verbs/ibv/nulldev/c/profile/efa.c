/* efa: Amazon's Elastic Fabric Adapter. */
#include <stdio.h>
#include "nd.h"

enum { MAX_SEND_SGE = 2, MAX_RECV_SGE = 1, MAX_WR = 4096, MAX_INLINE = 32 /* EFA_IO_TX_DESC_INLINE_MAX_SIZE */ };

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.0.0.0");
	a->vendor_id = 0x1d0f;
	a->vendor_part_id = 0xefa1;
	a->max_sge = MAX_RECV_SGE;
	a->max_sge_rd = 1;
	a->max_qp_wr = MAX_WR;
	a->max_srq = a->max_mw = a->max_qp_rd_atom = a->max_qp_init_rd_atom = 0;
	a->atomic_cap = VB_ATOMIC_NONE;
	a->device_cap_flags = 0;
	x->device_cap_flags_ex = 0;
}

/* There are queue pairs of type UD, and SRD as IBV_QPT_DRIVER of efadv_create_qp_ex (providers/efa/verbs.c,
 * efa_check_qp_attr; Linux efa_verbs.c, efa_create_qp). */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;

	(void)ops;
	if (a->qp_type != VB_QPT_UD)
		return EOPNOTSUPP;
	if (a->srq || cap->max_send_sge > MAX_SEND_SGE || cap->max_recv_sge > MAX_RECV_SGE || cap->max_inline_data > MAX_INLINE ||
	    cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR)
		return EINVAL;
	return 0;
}

static uint64_t ops(vb_enum type) { return type == VB_QPT_UD ? ND_OPS_SEND : 0; }

const struct nd_profile nd_efa = {
	.name = "efa",
	.node = VB_NODE_UNSPECIFIED,
	.transport = VB_TRANSPORT_UNSPECIFIED,
	.limits = limits,
	.qp = qp,
	.ops = ops,
	.no_resize = true, /* efa_ctx_ops */
};
