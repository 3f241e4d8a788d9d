/* A virtual function of mlx5, whose commands wait for the firmware: creating, moving, querying and
 * destroying a queue pair is a command each, and so is resizing a completion queue and registering
 * memory (drivers/infiniband/hw/mlx5/qp.c and qpc.c, create_qp_common, __mlx5_ib_modify_qp,
 * mlx5_core_qp_query; cq.c, mlx5_ib_resize_cq; mr.c). An address handle is none (ah.c).
 *
 * The firmware's time for one is from microseconds on a physical function to milliseconds on a
 * virtual one of a busy card: experience of those who ran it, not a source. */
#include "nd.h"

/* A firmware that answers atomics in big-endian order only: the kernel reports none
 * (drivers/infiniband/hw/mlx5/main.c, get_atomic_caps: atomic_req_8B_endianness_mode). */
static void limits(struct vb_device_attr_ex *x)
{
	nd_mlx5_limits(x);
	x->orig_attr.atomic_cap = VB_ATOMIC_NONE;
}

const struct nd_profile nd_mlx5_vf = {
	.name = "mlx5_vf",
	.limits = limits,
	.qp = nd_mlx5_qp,
	.ops = nd_mlx5_ops,
	.command_us = 2000,
};
