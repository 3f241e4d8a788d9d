/* mlx4: ConnectX-3, one device with two ports. The first has no cable. */
#include <stdio.h>
#include "nd.h"

static void limits(struct vb_device_attr_ex *x)
{
	struct vb_device_attr *a = &x->orig_attr;

	snprintf(a->fw_ver, sizeof(a->fw_ver), "2.42.5000");
	a->vendor_id = 0x02c9;
	a->vendor_part_id = 4103;
}

const struct nd_profile nd_mlx4 = {
	.name = "mlx4",
	.up = 2,
	.limits = limits,
	.blind = true, /* providers/mlx4/qp.c, mlx4_post_send and mlx4_post_recv */
};
