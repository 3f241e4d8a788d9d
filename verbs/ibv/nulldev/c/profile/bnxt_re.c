/* bnxt_re: Broadcom NetXtreme-E. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "229.0.154.0");
	a->vendor_id = 0x14e4;
	a->vendor_part_id = 0x1750;
}

const struct nd_profile nd_bnxt_re = {
	.name = "bnxt_re",
	.limits = limits,
};
