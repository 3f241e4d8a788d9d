// Package soft is a software RNIC in pure Go. It is the embedded verbs provider and has the
// semantics of hardware where there is none.
//
// # Layers
//
//	Provider, Context, PD, MR, CQ, QP     the contract of package verbs
//	Execute, post, poll                   the reactor's side: fills and empties rings
//	──────────── rings, one doorbell ────────────
//	device: requester, responder, CQs     the engine: steppable, no goroutine, no clock
//	──────────── encoded packets ────────────────
//	fabric.Port                           the link, with its faults
//
// A device is one engine. Each call of its Progress method consumes packets, timers and doorbells
// and returns. The goroutine that rings the doorbell usually runs the engine itself, and then the
// engine of the peer.
//
// # The path of a WRITE
//
//  1. Context.Execute copies the work request into the send queue's ring
//     (req_post.go). If the engine is idle, it puts the queue pair on the engine's
//     work list and runs the engine. Otherwise it puts the queue pair on the
//     doorbell list for the goroutine that runs the engine (device.kickFor).
//  2. The engine runs: the requester assigns PSNs to the request, cuts it to the
//     path MTU and sends packets that point into the sender's registered memory
//     (req.go, req_emit.go).
//  3. The peer's engine parses the header, checks PSN, opcode, key, range and
//     permission, copies the payload directly to its destination, and acknowledges
//     once at the end of Progress (resp.go, resp_*.go).
//  4. The acknowledgement completes the request. A signaled request leaves a
//     completion in the CQ's ring (req_ack.go, cq.go).
//  5. The reactor's next Context.Execute polls the completion.
//
// A WRITE or SEND of one packet, from one element or inline, that meets no error takes a fast
// path through steps 1 to 3 with the same effect (req_fast.go, resp_fast.go).
//
// # Ownership
//
// The holder of a port's token (a Progress call, or a control call in device.exclusive) owns the
// whole device except the producing end of the work queues and the consuming end of the
// completion queues. Those belong to the holder of the reactor's turn. The two sides share atomic
// words only, and all of these are on the Go heap, where the race detector sees them.
//
// # Time
//
// Retransmission timers run in real time. An engine stands still while the system has descheduled
// the thread that runs it, for half a second on a loaded machine. A queue pair whose
// retries end sooner (code 8, 1 ms, seven times) then considers its peer dead, as it would on
// hardware whose peer pauses. A connection in real time needs code 15, 134 ms.
//
// # Port down, device removal
//
// [Provider.SetPort], [Provider.Remove] and [Provider.Restore] simulate link failure, hot unplug
// and hot plug, in real and in virtual time (device_admin.go). A removed device touches no
// memory, and its outstanding requests never complete: docs/adr/0005.
//
// # Order
//
// READ responses leave at the end of the responder's Progress call. So a WRITE or SEND that is
// posted after a READ of the same memory, without a fence, executes before the data is fetched.
// The specification allows this (IBTA volume 1, 10.8.3.3); hardware seldom does it.
//
// # Windows that both ends end
//
// A program may take back a window of type 2, by LOCAL_INV or by Close, while the peer gives it back by
// SEND_WITH_INV. Neither end can exclude that, so both requests succeed, in either order: a LOCAL_INV of the
// key of a free window changes nothing, and a SEND_WITH_INV of one of the last 1,024 keys that its program has
// taken back on this queue pair is delivered as if it had ended the window. The specification makes both an
// error (IBTA o10-37.2.26, 9.9.6: class J), and so do adapters and rdma_rxe. Other keys are refused as there.
//
// # Memory that outlives the process
//
// A persistent FLUSH makes bytes of a mapped file (mem.MapFile) persistent with mem.Arena.Sync. For
// persistent memory that is an instruction of the processor for each cache line, for other files
// msync: a goroutine does that while the queue pair's responder waits (resp_persist.go). In virtual time the engine
// itself writes the pages. An access to a file on a disk waits in the same way until a goroutine has brought its pages
// in (disk_memory.go). A requester whose RNR retries are unlimited, by agreement of the connection manager, waits
// for the disk; any other ends with RETRY_EXC_ERR when its retries are used up.
//
// # Memory of the program
//
// Memory that the program mapped itself can be unmapped, protected or truncated while it is registered.
// An operation that meets such memory ends with an access error; mem_fault.go has the list. The test of
// each access adds about 10 ns to a WRITE of 8 bytes at each end that has such memory.
//
// # Payload by reference
//
// A packet's payload points into registered memory of its sender until the receiver has copied
// it. Each such packet carries a guard; mem_guard.go explains why no engine reads a buffer after
// its owner has it back. Packets of unreliable services carry copies instead: see below.
//
// # Memory that peers can occupy
//
// All memory that a peer can make this side allocate is bounded, whether or not the peer takes
// its packets, and however many addresses and queue pairs it uses:
//
//   - The inbox of a port: 32,768 units, a unit being a packet or 1 KiB of copied
//     payload, so about 48 MiB, and as much again for packets that an engine has taken
//     out at once. Each link has a share of it, 2,048 units for up to 16 links, so that
//     a flooding source takes nothing from the others (package fabric, room.go).
//     Packets beyond the share are dropped, as on a full switch: RC and the connection
//     manager repeat them, UC and UD lose them; [Counters] counts them. A datagram to a
//     queue pair without receives, and a packet to no queue pair, is dropped when the
//     engine takes it.
//   - Packets to a peer that takes nothing (READ responses, acknowledgements, requests,
//     management datagrams): the link's share. For a READ the responder keeps a
//     position, not packets. Queue pairs that find no room wait in line
//     (resp_stall.go). The shares of many such links together: 2,048 packets each for
//     16 links, then less each, but at least 32.
//   - A queue pair: 512 PSNs outstanding (requester); answers to the agreed number of
//     READs and atomics, twice that with repetitions, and to 512 FLUSHes; 512 packets
//     parked while a disk is waited for, in each direction, and 16,384 for all queue pairs, each 4 KiB of copied payload
//     counting as one more; 128 UC or UD packets in
//     flight (ud_pace.go); one timer.
//   - The connection manager: requests up to each listener's backlog, 1,024
//     refusals (package cm), and 32 unread asynchronous events for each object.
//
// The exception is a link with a fault script that delays. There each packet is a copy, of any
// length, and only the shares bound the queue of delayed packets.
//
// # Connections that ended
//
// A connection in TIMEWAIT whose identifier is closed keeps only its numbers, below 256 bytes for
// both ends. TIMEWAIT ends at the latest with the last context of the device: a device without
// contexts keeps only its counters and the numbers of queue pairs that ended within 20 s.
//
// # Unreliable services
//
// UC and UD queue pairs complete a request when it is sent (ud.go, ud_datagram.go). By then its
// payload is copied into packets, so that the owner may reuse the buffer. Because unreliable
// packets are not acknowledged, their number in flight is bounded for each queue pair
// (ud_pace.go). A datagram is one packet: at most the port's MTU, and 4096 bytes on a port with
// the jumbo MTU, where UC packets carry 32 KiB. A longer datagram completes with LOC_LEN_ERR.
// Here the specification and adapters disagree: C10-93.1.1 requires a silent drop, which rdma_rxe
// does (rxe_req.c, "fake a successful UD send"), and Mellanox adapters complete with a local
// length error (openucx/ucx#406 and #1022 show it on UD sends). Sending too much is a programming
// error, and this device reports it; the conformance case accepts either behavior.
//
// A local error moves the queue pair to SQE, as specified; rdma_rxe moves it to ERR. Packets that
// a receiver drops (no receive, a wrong queue key, a message with a gap) are not reported to
// either side; [Provider.Counters] counts them.
//
// A datagram to a multicast group is copied for each port that has queue pairs attached, and
// crosses that port's link with that link's faults (ud_mcast.go, package fabric). The sender
// receives a copy too if it is attached. Groups end at the fabric, so at the process: a join succeeds on every device,
// and a datagram to a group is not sent by UDP, neither with [LinkPeers] nor with [LinkRoCE].
package soft
