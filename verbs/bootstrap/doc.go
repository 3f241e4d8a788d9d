// Package bootstrap connects queue pairs without a connection manager: the two owners exchange
// the addresses of their queue pairs, by any means they have, and each moves its own from INIT to
// RTS.
//
// The package provides the means of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and
// ibv_srq_pingpong of rdma-core (libibverbs/examples), which many other programs copied: a TCP
// connection and one line of text for each queue pair, a [Dest].
//
//	client                                     server
//	CreateQP, Path.Init, post receives         CreateQP, Path.Init, post receives
//	     ── Dest × n ──────────────────────────────>
//	                                           Path.Connect
//	     <────────────────────────────── Dest × n ──
//	Path.Connect
//	     ── "done" ────────────────────────────────>
//
// So each side is ready to receive before the other knows its address. A C client connects only
// after its "done", so its server waits until the client sends first.
//
// # Limits
//
// Neither side learns when the other ends: there is no DISCONNECTED. An RC sender notices by the
// retries (IBV_WC_RETRY_EXC_ERR); UC and UD never notice. Nothing is negotiated either: both
// sides must use the same path MTU, and matching depths of READs. Nothing is authenticated or
// encrypted, unless the caller's net.Conn is.
// The peer may name the address of another machine. An RC queue pair of the software RNIC sends three
// packets there at most before a packet arrives from there. UC and UD queue pairs, whose packets have
// no acknowledgement, and RDMA devices send all packets that the program posts. The limit does not
// hold against a peer that can send packets with the source address of the other machine.
//
// The text is untrusted input and is parsed with bounds.
package bootstrap
