package reactor

import "math/rand/v2"

// After packet loss Soft-RoCE (rdma_rxe, seen with Linux 6.12) may complete an atomic with success
// although the atomic's answer has not arrived:
//
//  1. The answer of the atomic is lost, and a NAK of a later request arrives. rdma_rxe takes this
//     NAK as the acknowledgement of all requests before the later one, including the atomic
//     (check_ack in drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all packets with
//     psns before"). This advances comp.psn past the atomic.
//  2. rdma_rxe sends the atomic again. The PSN of the new answer is before comp.psn. So the new
//     answer completes the request, but rdma_rxe does not copy its data (check_psn returns
//     COMPST_COMP_ACK; do_atomic is skipped).
//
// IBTA requires a requester to repeat READs and atomics until the data arrives. Without a check the
// user would get an old value: the answer to the last atomic that used the slot.
//
// So before an atomic is posted, the reactor stores the value of the variable unanswered in the
// result word. If the word still has this value when the atomic completes, the operation fails.
//
// The flag FENCE on later requests would prevent step 1, because the device would send them only
// after the atomic has completed. But FENCE can deadlock rdma_rxe: a fenced request that must be
// sent again also waits for the READs behind it, which cannot complete before it does
// (rxe_wqe_is_fenced in rxe_req.c).

// The variable unanswered is the content of an atomic's result word until the answer arrives. It is
// a random number, chosen when the process starts. A real answer equals this number with a
// probability of 2^-64. The reactor then reports ErrUnanswered in place of the answer.
var unanswered = rand.Uint64()
