// Package outage is a load that outages are tried on: a process that has every
// kind of operation under way at once, checks every byte and every answer, and in
// the end says what became of each. The program is in folder peer; the tests of
// this package run it on the software RNIC, and in machines of internal/rxevm
// whose cable is cut, whose peer is killed and whose device is taken away.
//
// # One process
//
// A [Peer] serves and dials at the same time, so that both ends of an outage have
// everything under way. What it serves:
//
//	port    who comes there
//	base    managed connections
//	base+1  raw connections
//	base+2  datagrams
//
// Connections without a connection manager are dialled over TCP.
//
// Its private data tells the dialling side the memory that it may write; the
// dialling side's private data says which [Role] the connection has. Every
// connection that ends is dialled again until the process is told to stop.
//
// # What is recorded
//
// Every operation has a kind, a beginning, an end and an error. [Report] adds them
// up. An error must have a type that a program can act upon (see [Class]): one
// that has none is a finding. So is an operation that ended later than its
// bound, one that has not ended, a byte that is wrong, an answer to a FETCH_AND_ADD
// that is not the last one plus one, and what is left behind at the end.
//
// Operations that wait for the peer's program (receives, accepts) have no bound
// while the peer lives. [Peer.Mark] says that the peer has gone: from then on they
// have one, too. [Peer.Heal] takes that back.
package outage
