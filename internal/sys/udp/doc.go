// Package udp is a UDP socket that never blocks and sends and receives datagrams in batches.
//
// On Linux a batch is one system call, sendmmsg(2) or recvmmsg(2), and the socket is a descriptor that
// a poller watches. Elsewhere, and under the tag "portable", it is a socket of package net: a
// goroutine reads it, and announces what it has read.
//
// Datagrams are not fragmented: one that is longer than the path carries is refused or lost, except with
// Options.Fragment.
package udp
