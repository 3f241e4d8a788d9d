/* siw: iWARP in software, over the kernel's TCP (Linux drivers/infiniband/sw/siw). */
#include <stdio.h>
#include "nd.h"

enum {
	MAX_SGE = 6,			/* siw-abi.h, SIW_MAX_SGE */
	MAX_INLINE = 16 * (MAX_SGE - 1), /* SIW_MAX_INLINE: in the place of elements */
};

/* siw_verbs.c, siw_query_device */
static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.0.0");
	a->vendor_id = 0x626d74; /* siw.h, SIW_VENDOR_ID */
	a->vendor_part_id = 0;
	a->max_sge = MAX_SGE;
	a->max_sge_rd = 1; /* SIW_MAX_SGE_RD */
	a->max_mw = 0;	   /* SIW_MAX_MW */
	a->atomic_cap = VB_ATOMIC_NONE;
	a->device_cap_flags = VB_DEVICE_MEM_MGT_EXTENSIONS;
	x->device_cap_flags_ex = 0;
}

/* siw_verbs.c, siw_create_qp. What is granted beyond the wish is not reported. */
static int qp(struct vb_qp_init_attr_ex *a, uint64_t ops)
{
	const struct vb_qp_cap *cap = &a->cap;

	(void)ops;
	if (a->qp_type != VB_QPT_RC)
		return EOPNOTSUPP;
	if (cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE ||
	    cap->max_send_wr > ND_MAX_QP_WR || cap->max_recv_wr > ND_MAX_QP_WR || !cap->max_send_wr)
		return EINVAL;
	return 0;
}

const struct nd_profile nd_siw = {
	.name = "siw",
	.node = VB_NODE_RNIC,
	.transport = VB_TRANSPORT_IWARP,
	.tos_unsent = true,
	.dialer_first = true, /* siw_cm.c, siw_accept and siw_recv_mpa_rr */
	.limits = limits,
	.no_mw = true, /* providers/siw/siw.c, siw_context_ops */
	.qp = qp,
	.ops = nd_no_ops,
	.no_resize = true,
};
