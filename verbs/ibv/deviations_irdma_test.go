//go:build linux && cgo && !portable

package ibv

// irdmaDeviations are those of E810 and X722.
var irdmaDeviations = func() map[string]string {
	m := stateBlind("providers/irdma/uverbs.c, irdma_upost_send and irdma_upost_recv")
	m["send_queue_full_is_enomem"] = "the queue counts quanta of 32 bytes: requests of few elements fit more often than max_send_wr says " +
		"(providers/irdma/uk.c, irdma_qp_get_next_send_wqe)"
	m["create_qp_beyond_the_limits_is_refused"] = "the limit of requests is in quanta, and max_qp_wr counts as if each had the most of them " +
		"(providers/irdma/uk.c, irdma_get_sqdepth)"
	return m
}()
