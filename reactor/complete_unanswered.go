package reactor

import "math/rand/v2"

// Soft-RoCE (rdma_rxe, seen with Linux 6.12) completes an atomic with success and
// without its answer when packets were lost: the NAK of a request behind it counts as
// the acknowledgement of all before, also of atomics whose answer was lost
// (check_ack in drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all
// packets with psns before"), and the answer to the retry, which lies behind
// comp.psn then, completes the request without being copied (check_psn:
// COMPST_COMP_ACK; do_atomic is passed over). IBTA has requesters repeat READs and
// atomics until their data is there. What the caller would get is the answer to
// whatever used the slot before.
//
// So before an atomic is posted its result word is made to say that there is no
// answer yet. FENCE would keep the requests behind it away, but deadlocks there: a
// fenced request that is sent again waits for READs behind itself (rxe_wqe_is_fenced
// in rxe_req.c).

// unanswered stands in the result word of an atomic until its answer does. It is
// another value in every process, so that nobody's word has it but by an accident of
// 1 in 2^64: then the caller gets an error for an answer.
var unanswered = rand.Uint64()
