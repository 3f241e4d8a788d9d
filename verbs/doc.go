// Package verbs defines the vocabulary of RDMA and the contract between a reactor and a provider.
// It has no behavior of its own except to make [Memory], and no cgo.
//
// # Contents
//
//   - the names: opcodes, flags, access bits, queue pair types and states,
//     completion statuses, events, named and numbered as in <infiniband/verbs.h>
//     and <rdma/rdma_cma.h>;
//   - the fixed-layout records a device reads and writes: [SGE], [SendWR],
//     [RecvWR], [WC]. On 64-bit they are byte for byte ibv_sge, ibv_send_wr,
//     ibv_recv_wr and ibv_wc, hold no Go pointers, and live in off-heap memory
//     ([Memory]), so that a provider posts them without translation;
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
// Close of a parent with living children returns [ErrBusy].
//
// # Goroutines
//
// Any goroutine may create, query and close objects. One goroutine at a time posts to, polls and
// arms a queue pair, its completion queues and its channel: the holder of the reactor's turn.
//
// # Blocking
//
// No call of the contract waits for another goroutine, for the network or for the acknowledgement
// of an event. Where the C library would wait (destroying an object with unacknowledged events)
// the call returns [ErrBusy] instead.
package verbs
