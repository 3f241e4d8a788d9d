/* mlx5 on Ethernet: ConnectX-4 to ConnectX-7, BlueField. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "28.39.1002");
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 4129;
}

const struct nd_profile nd_mlx5 = {
	.name = "mlx5",
	.limits = limits,
};
