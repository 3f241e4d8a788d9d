package reactor

import "math/rand/v2"

// Soft-RoCE (rdma_rxe, seen with Linux 6.12) completes an atomic with success and without its
// answer when packets were lost. The NAK of a later request counts as the acknowledgement of all
// requests before it, including atomics whose answer was lost (check_ack in
// drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all packets with psns before").
// The answer to the retry, which lies behind comp.psn then, completes the request without being
// copied (check_psn: COMPST_COMP_ACK; do_atomic is passed over). IBTA has requesters repeat READs
// and atomics until their data is there. The caller would get the answer of the request that used
// the slot before.
//
// So the result word of an atomic holds unanswered when it is posted. FENCE would hold the later
// requests back, but deadlocks there: a fenced request that is sent again waits for READs behind
// itself (rxe_wqe_is_fenced in rxe_req.c).

// unanswered is the content of an atomic's result word until its answer arrives. It is random for
// each process, so an answer equals it only by an accident of 1 in 2^64: the caller then gets an
// error for an answer.
var unanswered = rand.Uint64()
