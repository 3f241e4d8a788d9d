//go:build linux && cgo && !portable

package ibv

// mlx5Deviations are those of ConnectX-4 and later, and of BlueField.
var mlx5Deviations = with(stateBlind("providers/mlx5/qp.c, _mlx5_post_send and mlx5_post_recv"),
	"create_qp_beyond_the_limits_is_refused",
	"the limit of elements is the size of a request, which depends on its kind, and not max_sge (providers/mlx5/verbs.c, mlx5_calc_send_wqe)")
