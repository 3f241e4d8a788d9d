//go:build linux && cgo && !portable

package ibv

// erdmaDeviations are those of Alibaba Cloud's Elastic RDMA.
var erdmaDeviations = func() map[string]string {
	const refused = "posts after a move to ERR are refused with -EIO (providers/erdma/erdma_verbs.c, erdma_post_send and erdma_post_recv)"
	m := stateBlind("providers/erdma/erdma_verbs.c, erdma_post_send and erdma_post_recv, in all states but ERR")
	m["posts_in_err_are_accepted_and_flushed"] = refused
	m["cm_disconnect_is_seen_by_both_and_flushes"] = refused
	m["create_qp_beyond_the_limits_is_refused"] = "max_sge is the smaller of the limits of sends and receives " +
		"(Linux drivers/infiniband/core/uverbs_cmd.c, copy_query_dev_fields; erdma_verbs.c, erdma_query_device)"
	return m
}()
