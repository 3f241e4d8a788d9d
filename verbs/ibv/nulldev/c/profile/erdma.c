/* erdma: Alibaba Cloud's Elastic RDMA. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.2.0");
	a->vendor_id = 0x1ded;
	a->vendor_part_id = 0x107f;
}

const struct nd_profile nd_erdma = {
	.name = "erdma",
	.limits = limits,
};
