/* mlx5 on InfiniBand. */
#include "nd.h"

const struct nd_profile nd_mlx5_ib = {
	.name = "mlx5_ib",
	.infiniband = true,
	.lmc = 1,
	.path_life = 18, /* opensm: OSM_DEFAULT_SUBNET_TIMEOUT */
	.comm_est = true, /* the firmware's MLX5_EVENT_TYPE_COMM_EST (kernel mlx5/qp.c, mlx5_ib_qp_event) */
	.td_abort = true, /* providers/mlx5/mlx5.h, mlx5_spin_lock: "multithreading violation" */
	.limits = nd_mlx5_limits,
	.blind = true, /* providers/mlx5/qp.c, _mlx5_post_send and mlx5_post_recv */
	.bind_most = ND_MLX5_BIND_MOST,
	.qp = nd_mlx5_qp,
	.ops = nd_mlx5_ops,
	.sq_ring = nd_mlx5_sq_ring,
	.cq_rounded = true, /* providers/mlx5/verbs.c, create_cq and mlx5_resize_cq: align_queue_size(cqe + 1) */
	.resize_us = 500,   /* mlx5_resize_cq holds the lock while the kernel pins the new ring */
};
