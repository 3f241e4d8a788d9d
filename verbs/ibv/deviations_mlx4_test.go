//go:build linux && cgo && !portable

package ibv

// mlx4Deviations are those of ConnectX-3.
var mlx4Deviations = stateBlind("providers/mlx4/qp.c, mlx4_post_send and mlx4_post_recv")
