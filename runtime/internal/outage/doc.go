// Package outage is a load for testing outages: a process that has every kind of operation
// outstanding at once, checks every byte and every answer, and reports the outcomes at the end. The
// program is in the directory peer. The tests of this package run it on the software RNIC, and in
// the virtual machines of internal/rxevm, where they cut the cable, kill the peer and remove the
// device.
//
// # One process
//
// A [Peer] can serve and dial at the same time, so that both ends of an outage have all kinds of
// operations outstanding. It serves:
//
//	port    connections
//	base    managed connections
//	base+1  raw connections
//	base+2  datagrams
//
// Connections without a connection manager are made over a TCP connection, at an address of their
// own.
//
// The serving side's private data describes the memory that the dialing side may write; the dialing
// side's private data names the [Role] of the connection. A connection that ends before its rounds
// are done is dialed again, until the process is stopped.
//
// # What is recorded
//
// Every operation has a kind, a beginning, an end and an error. [Report] sums them up. An error
// must have a type to which a program can react (see [Class]). Findings are an error without such a
// type, an operation that ended later than its bound or has not ended, a wrong byte, an atomic's
// answer that is not the value that the atomic before it left, and a resource that is left at the
// end.
//
// Operations that wait for the peer's program (receives, accepts) have no bound while the peer
// lives, and connections have none. [Peer.Mark] records that the peer is gone: from then on they
// have a bound, too. [Peer.Heal] reverts that.
package outage
