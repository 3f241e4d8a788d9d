package reactor

import "math/rand/v2"

// After packet loss Soft-RoCE (rdma_rxe, seen with Linux 6.12) may complete an atomic with success
// although the atomic's answer has not arrived:
//
//  1. The answer of the atomic is lost, and a NAK of a later request arrives. rdma_rxe takes this
//     NAK as the acknowledgement of all requests before the later request, including the atomic
//     (check_ack in drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all packets with
//     psns before"). So rdma_rxe advances comp.psn past the atomic.
//  2. rdma_rxe sends the atomic again. The PSN of the new answer is before comp.psn. So the new
//     answer completes the request, but rdma_rxe does not copy its data (check_psn returns
//     COMPST_COMP_ACK; do_atomic is skipped).
//
// IBTA requires a requester to repeat READs and atomics until the data arrives. If rdma_rxe completes
// the atomic without the data, the result word of the slot still holds an old value: the answer to the
// previous atomic in this slot. Without a check the user would get this value.
//
// So before an atomic is posted, the reactor stores a random number (the variable unanswered, below)
// in the result word. If the word still has this number when the atomic completes, the operation
// fails.
//
// The flag FENCE on later requests would prevent step 1, because the device would send them only
// after the atomic has completed. But FENCE can deadlock rdma_rxe: a fenced request that must be
// sent again also waits for the READs that follow it in the send queue, and these READs cannot
// complete before the fenced request completes (rxe_wqe_is_fenced in rxe_req.c).

// unanswered is the content of an atomic's result word until the answer arrives. It is
// a random number, chosen when the process starts. A real answer equals this number with a
// probability of 2^-64. If it does, the reactor reports ErrUnanswered in place of the answer.
var unanswered = rand.Uint64()
