//go:build linux && cgo && !portable

package ibv

import (
	"maps"

	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// withoutWhatRXELacks removes the capabilities that Soft-RoCE lacks, and adds the cases in which
// it departs from the specification.
func withoutWhatRXELacks(c *verbstest.Caps) {
	// It raises no other events of queue pairs than SQ_DRAINED and
	// LAST_WQE_REACHED (no other IB_EVENT_ in its source).
	c.AccessEvents, c.CommEst = false, false
	c.Deviations = maps.Clone(c.Deviations)
	maps.Copy(c.Deviations, rxeDeviations())
}

// rxeDeviations returns the cases in which Soft-RoCE differs, with the place in its source. A
// file without a folder is of Linux 6.12.117, drivers/infiniband/sw/rxe.
func rxeDeviations() map[string]string {
	const (
		flushed = "an error found by the requester itself completes as WR_FLUSH_ERR: rxe_requester moves the queue pair to ERR, " +
			"and rxe_completer, next in the same task, flushes the request that failed with the others (rxe_req.c; rxe_comp.c, flush_send_queue)"
		unsolicited = "completions of the send queue are posted as not solicited, errors too (rxe_comp.c, flush_send_wqe and do_complete)"
		malformed   = "a message longer than its receive is taken for a malformed receive: copy_data answers EINVAL, and send_data_in knows ENOSPC only " +
			"(rxe_mr.c; rxe_resp.c)"
		overrun = "a full queue raises CQ_ERR and drops the completion, and then goes on (rxe_cq.c, rxe_cq_post)"
		window  = "an access through a window is checked against the bounds of its region, not of the window (rxe_resp.c, check_rkey)"
		answers = "an answer that comes again completes a READ or an atomic without taking its data: a NAK for a sequence error counts as an answer to what it follows " +
			"(rxe_comp.c, check_ack), then the answer itself is taken for a repetition and the request is complete (check_psn, COMPST_COMP_ACK); seen also: a READ that never ends, and a kernel warning"
	)
	m := map[string]string{
		"qp_values_out_of_range_are_refused": "the index of the P_Key is not looked at (rxe_qp.c, rxe_qp_chk_attr)",
		"sqd_holds_new_sends_until_rts":      "leaving SQD for RTS does not start the send queue again; the next post does (rxe_qp.c, rxe_qp_from_attr)",
		"posts_in_err_are_accepted_and_flushed": "a receive posted in ERR lies there until a packet comes: posting one makes no system call " +
			"(rdma-core providers/rxe/rxe.c, rxe_post_recv), and closing discards it (rxe_resp.c, rxe_receiver, without notify)",
		"delay_and_jitter_are_waited_for":     answers,
		"partition_that_heals_is_not_noticed": answers,
		"loss_is_repaired":                    answers,
		"duplicates_are_not_executed":         answers, // if the machine is slow, requests are also sent again
		"reordering_is_repaired":              answers,
		"all_faults_at_once_are_repaired":     answers,
		"cm_udp_silence_is_unreachable": "the kernel asks 16 times, 4.1 s apart (drivers/infiniband/core/cma.c, CMA_MAX_CM_RETRIES and " +
			"CMA_CM_RESPONSE_TIMEOUT), longer than the suite waits",
		"async_sq_drained_comes_once_per_request":             "SQ_DRAINED is raised whether or not it was asked for (rxe_req.c, req_check_sq_drain_done)",
		"ud_queue_key_with_the_top_bit_is_the_senders_own":    "the Q_Key of the request is sent as it stands (rxe_req.c, init_req_packet)",
		"rc_message_longer_than_the_receive_fails_both_sides": malformed,
		"uc_receive_too_small_is_no_success":                  malformed,
		"cq_overrun_kills_the_queue_and_its_queue_pairs":      overrun,
		"cq_overrun_is_final":                                 overrun,
		"mw2_behind_a_resend_is_bound_once": "a retransmission of earlier packets executes a binding again, which fails, because the window is bound " +
			"(rxe_req.c, req_retry and rxe_requester); see verbs.DeviceAttr.BindsAgain",
		"mw1_ends_where_it_was_bound_to":                        window,
		"mw2_ends_where_it_was_bound_to":                        window,
		"solicited_only_hears_errors":                           unsolicited,
		"message_over_the_port_limit_is_refused":                flushed,
		"rc_second_element_is_checked_too":                      flushed,
		"uc_reads_and_atomics_are_refused":                      flushed,
		"ud_takes_no_other_opcodes":                             flushed,
		"ud_local_error_stops_the_send_queue_only":              flushed,
		"uc_local_error_stops_the_send_queue_only":              flushed,
		"mw1_failed_binding_flushes_what_is_behind":             flushed,
		"mw2_failed_binding_flushes_what_is_behind":             flushed,
		"mw2_bound_cannot_be_bound_again":                       flushed,
		"mw2_cannot_be_bound_by_a_queue_pair_of_another_domain": flushed,
		"local_inv_of_an_unknown_key_fails":                     flushed,
		"local_inv_of_an_old_key_fails":                         flushed,
		"local_inv_of_a_type_1_window_fails":                    flushed,
	}
	for _, op := range []string{"send", "write"} {
		for _, from := range []string{"wrong_lkey", "one_byte_before", "one_byte_behind", "range_that_wraps", "key_of_another_domain", "deregistered_key"} {
			m["rc_"+op+"_from_"+from+"_is_loc_prot_err"] = flushed
		}
	}
	return m
}
