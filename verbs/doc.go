// Package verbs is the vocabulary of RDMA and the contract between a reactor
// and a provider. It has no behaviour of its own but to make [Memory], and no cgo.
//
// # What is here
//
//   - the words: opcodes, flags, access bits, queue pair types and states,
//     completion statuses, events, named and numbered as in <infiniband/verbs.h>
//     and <rdma/rdma_cma.h>;
//   - the fixed-layout records a device reads and writes: [SGE], [SendWR],
//     [RecvWR], [WC]. On 64-bit they are byte for byte ibv_sge, ibv_send_wr,
//     ibv_recv_wr and ibv_wc, hold no Go pointers, and live in off-heap memory
//     ([Memory]), so that a provider posts them without translating;
//   - the contract: [Provider], [Context] and the objects below it;
//   - the errors: sentinels, [OpError] for a call that failed, [WCError] for an
//     operation that completed without success.
//
// # The parents and children of an object
//
//	Provider ─ Context ─┬─ PD ─┬─ MR
//	    │               │      ├─ MW
//	    │               │      ├─ AH
//	    │               │      ├─ SRQ
//	    │               │      └─ QP ── (its CQs, its SRQ)
//	    │               ├─ CompChannel ── CQ
//	    │               └─ AsyncChannel
//	    └─ CMChannel ── CMID ── QP
//
// A parent with living children answers Close with [ErrBusy].
//
// # Goroutines
//
// Creating, querying and closing objects may be done from any goroutine. A
// queue pair, its completion queues and its channel are posted to, polled and
// armed by one goroutine at a time: the holder of their reactor's turn.
//
// # Blocking
//
// No call of the contract waits for another goroutine, for the network or for
// an event to be acknowledged. Where the C library would wait (destroying an
// object with unacknowledged events) the call answers [ErrBusy] instead.
package verbs
