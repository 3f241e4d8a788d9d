// Package cm is the InfiniBand connection manager: a codec for its management datagrams and a state
// machine that sets up connections with them.
//
// It does no I/O, has no clock and starts no goroutine. The owner of a [Machine] passes it arrived
// datagrams ([Machine.Receive]) and the time ([Machine.Progress]), and gets datagrams and events
// through two callbacks. The same calls in the same order with the same random numbers give the
// same datagrams, so a seed replays a run bit for bit.
//
// # States
//
//	    active                                passive
//
//	     IDLE                                 LISTEN (a Listener)
//	      │ Connect: REQ →                      │ → REQ
//	      v                                     v
//	  REQ_SENT ──────── → MRA ────────┐     REQ_RCVD ── half the peer's timeout,
//	      │ ^                         v         │       or a second REQ: MRA → ──┐
//	      │ └─ waited: REQ → ── MRA_REQ_RCVD    │                                v
//	      │ → REP                     │         │                          MRA_REQ_SENT
//	      v                           │         │ Accept: REP →                  │
//	  REP_RCVD <──────────────────────┘         v                                │
//	      │   └─ slow: MRA → ─┐             REP_SENT <───────────────────────────┘
//	      │ SendRTU: RTU →    v                 │ ^ └─ → MRA ──┐
//	      │ <───────── MRA_REP_SENT             │ └─ REP → ──  v
//	      v                                     │        MRA_REP_RCVD
//	ESTABLISHED                                 │ → RTU, or data on the queue pair
//	                                            v
//	                                       ESTABLISHED
//
// and then the same for both:
//
//	ESTABLISHED ── Disconnect: DREQ → ── DREQ_SENT ── → DREP, → DREQ, or no answer ──┐
//	     │                                                                           v
//	     └── → DREQ ── DREQ_RCVD ── SendDREP: DREP → ──────────────────────────> TIMEWAIT ── gone
//
// A REJ ends a connection that is not yet established: at once for its receiver; its sender
// remembers it for a while (REJ_SENT), so that a repeated REQ is answered with the same REJ and
// does not look like a new connection.
//
// # Guarantees
//
//   - Every [Conn] gets exactly one terminal event: EvRejected, EvUnreachable or EvTimewaitExit;
//     EvDisconnected comes once before EvTimewaitExit. A connection closed by its owner gets none.
//     A query gets EvSIDRReply or EvUnreachable.
//   - A lost datagram is repeated: REQ, REP and DREQ by their sender, up to the retry count; MRA,
//     REJ, RTU and DREP when the datagram that they answer comes again.
//   - A duplicate changes nothing and gets the same answer as the first one.
//   - A datagram is accepted only from the peer's address, and if it names the connection: see below.
//   - Between processes, at most three times the bytes that came from an address are sent there until
//     a datagram names the ID of this side, or data its queue pair.
//   - How long a half-open connection is kept does not depend on what a request from outside the process says.
//   - A closed connection keeps no reference to its owner, and in TIMEWAIT only its numbers
//     (timewait.go).
//
// # Forged datagrams
//
// An attacker on the way between the ends sees all numbers and can end everything. One elsewhere must forge the
// peer's address, name both UDP ports of a path between processes (16 bits each, if they are not known), and name the connection
// by all that the message has room for. The bits to guess, where both ends are this package (the kernel's numbers are
// not random):
//
//	MRA, REP or REJ for a REQ              64   communication ID and transaction ID of the request
//	ICMP "port unreachable" for a REQ      64   transaction ID, as quoted; it needs no forged address
//	REJ of an initiator that gave up       64   the same
//	DREQ for a REQ                         56   communication ID, queue pair number
//	REQ again                              88   communication ID, transaction ID, queue pair number
//	RTU, MRA or REJ for a REP, REP again   96   both communication IDs, transaction ID
//	DREQ                                   88   both communication IDs, queue pair number
//	DREP                                   96   both communication IDs, transaction ID of the DREQ
//	SIDR_REP                               64   request ID, transaction ID
//	data in place of the RTU               48   queue pair number, first PSN
//
// A REQ names nothing of this side. If it names a queue pair of the peer that is in a connection, it is refused as
// stale, and ends that connection only if it comes from within the process: the connection manager has no message
// with which to ask whether it is true. The connection of a process that was killed and begun again ends by its own
// traffic, and its new process asks with another queue pair number. Without traffic the connection stays.
// A REP with such a queue pair ends the connection, because it also names the request that it answers.
//
// # Differences from the kernel's ib_cm (drivers/infiniband/core/cm.c)
//
//   - A repeated REQ in REP_SENT gets the REP again, and in REJ_SENT the REJ again; the kernel
//     waits for its own timer or sees a new request.
//   - A REP for an unknown connection is answered with REJ 6 (invalid communication ID), according
//     to IBTA 12.9.8.3.1; the kernel sends nothing.
//   - An RTU for an unknown connection is answered with REJ 6, too.
//   - Between processes an MRA answers a repeated REQ only, and the RTU is sent twice: see the limit for
//     unproven addresses.
//   - A passive side that gave up on the RTU, or was closed before it came, takes the connection
//     down with a DREQ, which is repeated until answered, so that no half of a connection remains.
//   - A REQ from outside the process for a queue pair in a connection ends nothing; the kernel ends the connection.
//   - The transaction ID is compared, too, and the passive side repeats its REP at its own pace, not the peer's.
//   - A DREQ is repeated as often as this side is configured to, not the peer.
//   - A DREQ that comes before the REP ends the attempt; the kernel answers it and continues to
//     wait.
//
// Service resolution, a query and its answer, is drawn in lookup.go. The alternate path messages
// (LAP, APR) are not implemented.
package cm
