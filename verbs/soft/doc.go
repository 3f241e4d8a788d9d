// Package soft is a software RNIC in pure Go: the embedded provider, and the
// same semantics as hardware where there is none.
//
// # Layers
//
//	Provider, Context, PD, MR, CQ, QP     the contract of package verbs
//	turn, post                            the reactor's side: fills and empties rings
//	──────────── rings, one doorbell ────────────
//	device: requester, responder, CQs     the engine: steppable, no goroutine, no clock
//	──────────── encoded packets ────────────────
//	fabric.Port                           the link, with its faults
//
// A device is one engine. Its Turn consumes packets, timers and doorbells, and
// returns; whoever rings the doorbell usually runs it, and then the engine of
// the peer, on its own goroutine.
//
// # The way of a WRITE
//
//  1. Context.Turn copies the work request into the send queue's ring
//     (req_post.go). If it finds the engine at rest it puts the queue pair on
//     its list and runs it; otherwise it puts it on the doorbell list, for
//     whoever runs the engine (device.kickFor).
//  2. The engine runs: the requester gives the request its PSNs, cuts
//     it to the path MTU and sends packets that point into the sender's
//     registered memory (req.go, req_emit.go).
//  3. The peer's engine parses the header, checks PSN, opcode, key, range and
//     permission, copies the payload straight to its place, and acknowledges
//     once at the end of its turn (resp.go, resp_*.go).
//  4. The acknowledgement retires the request; a signaled one leaves a
//     completion in the CQ's ring (req_ack.go, cq.go).
//  5. Context.Turn of the reactor polls it out.
//
// A WRITE or SEND of one packet, from one element or inline, with everything in order, goes
// through 1 to 3 by a shorter path that does the same (req_quick.go, resp_quick.go).
//
// # Who touches what
//
// The holder of a port's token (the engine's turn, or a control call through
// device.exclusive) owns everything of the device except the producing end of
// the work queues and the consuming end of the completion queues, which belong
// to the holder of the reactor's turn. Both ends meet in atomic words only,
// and all of those are on the Go heap, where the race detector sees them.
//
// # Time
//
// Retransmission timers are real. An engine stands still while the system has
// descheduled the thread that runs it, tens of milliseconds on a loaded
// machine; a queue pair whose retries end sooner (code 8, 1 ms, seven times)
// takes its peer for dead then, as it would on hardware whose peer pauses.
// Code 14, 67 ms, is what a connection needs in real time.
//
// # Ports down, devices out
//
// [Provider.SetPort], [Provider.Remove] and [Provider.Restore] do what a hand at
// the adapter does, in real time and virtual (device_admin.go). A removed device touches no
// memory, and what is outstanding never completes: docs/adr/0005.
//
// # Order
//
// READ responses leave at the end of the responder's turn. So a WRITE or SEND
// posted behind a READ of the same memory, without a fence, is executed before
// the data is fetched: allowed by the specification (IBTA volume 1, 10.8.3.3), and seldom
// seen on hardware.
//
// # Memory that outlives the process
//
// A persistent FLUSH writes pages of a mapped file (mem.MapFile) with msync. A
// goroutine does that, and this queue pair's responder waits (resp_persist.go); in
// virtual time the engine writes itself.
//
// # Payload by reference
//
// A packet's payload points into registered memory of its sender until the
// receiver has copied it. Each such packet carries a guard; see mem_guard.go for
// why nothing reads a buffer that its owner has back. Unreliable packets carry
// copies instead: see below.
//
// # What a peer can make us hold
//
// Memory that a peer has a say in is bounded, whether or not the peer takes
// anything, however many addresses and queue pairs it uses:
//
//   - The inbox of a port: 32,768 units, a unit being a packet or 1 KiB of copied
//     payload, so some 48 MiB, and as much again of what an engine took out at
//     once. A link has a share of it, 2,048 units while there are no more than 16,
//     so that a source that floods takes nothing from others (package fabric,
//     room.go). What is beyond is dropped, as on a full switch: RC repeats it, the
//     connection manager repeats it, UC and UD lose it; [Counters] counts it. A
//     datagram to a queue pair without receives, and a packet to no queue pair, is
//     dropped when it is taken.
//   - What we send to a peer that takes nothing (READ responses, acknowledgements,
//     requests, management datagrams): the link's share. Of a READ the responder
//     keeps the position, not packets; queue pairs that find no room wait in line
//     (resp_stall.go). The shares of many such links together: 2,048 packets each for 16,
//     then less each, but at least 32.
//   - A queue pair: 512 PSNs outstanding (requester); answers to as many READs and
//     atomics as were agreed, twice that with repetitions, and to 512 FLUSHes;
//     512 packets parked behind a FLUSH, and 16,384 for all queue pairs; 128
//     packets on the way of UC and UD (ud_pace.go); one timer.
//   - The connection manager: requests up to each listener's backlog, 1,024
//     refusals (package cm), and 32 unread asynchronous events for each object.
//
// The exception are links with a script that delays: there each packet is a copy,
// however long, and the line of those that wait has no bound but the shares.
//
// # Connections that ended
//
// In TIMEWAIT a connection whose identifier is closed is its numbers, below 256
// bytes for both ends. It ends with the last context of the device at the latest:
// a device that nobody has open keeps counters and where its numbering stands.
//
// # Unreliable services
//
// UC and UD queue pairs complete a request when it is sent (ud.go,
// ud_datagram.go). By then its payload is copied into packets, so that the owner
// may use the buffer again; and the packets on their way are bounded for each
// queue pair (ud_pace.go), because nobody acknowledges them. A datagram is one
// packet: at most the port's MTU, and 4096 bytes on a port with the jumbo MTU,
// where UC packets carry 32 KiB. A longer datagram completes with LOC_LEN_ERR.
// There the specification and adapters disagree: C10-93.1.1 has it dropped without
// an error, which rdma_rxe does (rxe_req.c, "fake a successful UD send"), and
// Mellanox adapters complete with a local length error (openucx/ucx#406 and #1022
// show it on UD sends). A program that sends too much is wrong, and hears of it
// here; the conformance case takes either.
//
// A local error moves the queue pair to SQE, as the specification has it;
// rdma_rxe moves it to ERR. What a receiver drops (no receive, a wrong queue
// key, a message with a gap) nobody is told of; [Provider.Counters] counts it.
//
// A datagram to a multicast group is copied for each port that has queue pairs
// attached, and goes over that port's link with that link's faults (ud_mcast.go,
// package fabric). The sender has one too if it is attached.
package soft
