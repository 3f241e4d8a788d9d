/* irdma as RoCE: Intel E810. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "1.71");
	a->vendor_id = 0x8086;
	a->vendor_part_id = 0x1593;
}

const struct nd_profile nd_irdma = {
	.name = "irdma",
	.limits = limits,
};
