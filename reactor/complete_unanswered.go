package reactor

import "math/rand/v2"

// After packet loss Soft-RoCE (rdma_rxe, seen with Linux 6.12) may complete an atomic with success
// although its answer has not arrived. The NAK of a later request counts as the acknowledgement of
// all requests before it, including atomics whose answer was lost (check_ack in
// drivers/infiniband/sw/rxe/rxe_comp.c: "a nak implicitly acks all packets with psns before"). The
// PSN of the answer to the retry is then before comp.psn: the answer completes the request, but
// its data is not copied (check_psn: COMPST_COMP_ACK; do_atomic is skipped). IBTA requires a
// requester to repeat READs and atomics until the data arrives. Without a check the user would get
// the answer to the request that used the slot before.
//
// So the result word holds the value unanswered when the atomic is posted. FENCE on the later
// requests would avoid the loss, but deadlocks in rdma_rxe: a fenced request that is sent again
// waits for later READs (rxe_wqe_is_fenced in rxe_req.c).

// unanswered is the content of an atomic's result word until its answer arrives. It is random for
// each process: with a probability of 2^-64 a real answer equals it and is taken for a missing
// one.
var unanswered = rand.Uint64()
