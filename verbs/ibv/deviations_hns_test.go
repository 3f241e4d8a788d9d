//go:build linux && cgo && !portable

package ibv

// hnsDeviations are those of HiSilicon's HNS.
var hnsDeviations = map[string]string{
	"create_qp_beyond_the_limits_is_refused": "more inline bytes than the device has are granted in part (providers/hns/hns_roce_u_verbs.c, get_max_inline_data)",
}
