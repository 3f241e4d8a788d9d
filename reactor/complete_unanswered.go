package reactor

import "math/rand/v2"

// After packet loss Soft-RoCE (rdma_rxe, seen with Linux 6.12) may complete an atomic with success
// although its answer has not arrived:
//
//  1. The answer of the atomic is lost, and a NAK of a later request arrives. rdma_rxe takes the NAK
//     as the acknowledgement of all requests before it, and so of the atomic (check_ack in
//     drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all packets with psns before").
//  2. rdma_rxe repeats the atomic. The PSN of the answer is now before comp.psn. So the answer
//     completes the request, but its data is not copied (check_psn: COMPST_COMP_ACK; do_atomic is
//     skipped).
//
// IBTA requires a requester to repeat READs and atomics until the data arrives. Without a check the
// user would get the answer to the request that used the slot before.
//
// So the result word holds the value unanswered when the atomic is posted. The operation fails if
// the word still has this value when the atomic completes. FENCE on the later requests would avoid
// the loss, but deadlocks in rdma_rxe: a fenced request that is sent again waits for later READs
// (rxe_wqe_is_fenced in rxe_req.c).

// unanswered is the content of an atomic's result word until the answer arrives: a random number,
// chosen when the process starts. With a probability of 2^-64 a real answer equals it; the reactor
// then reports ErrUnanswered in place of the answer.
var unanswered = rand.Uint64()
