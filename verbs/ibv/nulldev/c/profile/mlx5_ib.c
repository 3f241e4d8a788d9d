/* mlx5 on InfiniBand. */
#include "nd.h"

const struct nd_profile nd_mlx5_ib = {
	.name = "mlx5_ib",
	.infiniband = true,
	.lmc = 1,
	.path_life = 18, /* opensm: OSM_DEFAULT_SUBNET_TIMEOUT */
	.limits = nd_mlx5_limits,
	.qp = nd_mlx5_qp,
	.ops = nd_mlx5_ops,
};
