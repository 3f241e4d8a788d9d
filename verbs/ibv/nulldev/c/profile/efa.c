/* efa: Amazon's Elastic Fabric Adapter. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "0.0.0.0");
	a->vendor_id = 0x1d0f;
	a->vendor_part_id = 0xefa1;
}

const struct nd_profile nd_efa = {
	.name = "efa",
	.node = VB_NODE_UNSPECIFIED,
	.transport = VB_TRANSPORT_UNSPECIFIED,
	.limits = limits,
};
