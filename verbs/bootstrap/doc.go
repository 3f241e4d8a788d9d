// Package bootstrap connects queue pairs without a connection manager: the two
// owners tell each other where their queue pairs are, by whatever means they
// have, and each moves its own from INIT to RTS.
//
// The means it has itself is the one of ibv_rc_pingpong, ibv_uc_pingpong,
// ibv_ud_pingpong and ibv_srq_pingpong of rdma-core (libibverbs/examples), which
// many other programs copied: a TCP connection and one line of text for each
// queue pair, a [Dest].
//
//	client                                     server
//	CreateQP, Path.Init, post receives         CreateQP, Path.Init, post receives
//	     ── Dest × n ──────────────────────────────>
//	                                           Path.Connect
//	     <────────────────────────────── Dest × n ──
//	Path.Connect
//	     ── "done" ────────────────────────────────>
//
// So each side is ready to receive before the other is told where to send; a C
// client connects only after its "done", so its server waits for it to send
// first.
//
// # What is not there
//
// Nobody is told when the other side ends: there is no DISCONNECTED. Whoever
// sends on RC finds out by the retries (IBV_WC_RETRY_EXC_ERR); on UC and UD never. Nothing is negotiated either: both must be given the same path MTU, and
// depths of READs that fit. Nothing is authenticated or encrypted, unless the
// caller's net.Conn is.
//
// The text comes from outside and is parsed with bounds.
package bootstrap
