// Package peers is the suite "peers" of the benchmarks: two processes of one machine that talk over
// loopback. It measures ours, on the software RNIC by UDP and without any configuration, beside Go's
// TCP, beside UCX and libfabric over TCP and UDP, and beside two floors.
//
// # How it measures
//
// A contender is two processes, a server and a client. Each round starts both, and ends them before
// the next contender has its turn, so that none polls while another is measured. A row of the table
// is the median of the rounds.
//
// Both processes of ours, of Go's and of the floors speak the protocol of package side: this program
// starts the server, which answers with its port, and then the client, which warms up and does the
// round. CPU time is that of each process (getrusage) over the measured operations alone: the client
// measures its own, and the server answers what it has used until now, before and after the round.
// The same holds for allocations. Foreign programs are run to their end, and their output is parsed.
//
// A latency is half a round trip. For a WRITE that a goroutine awaits in Conn.Do, the round trip is
// one datagram to the peer and the acknowledgment back, so that its half compares with the half of an
// exchange of two datagrams or messages.
//
// # Contenders
//
//	ours          Conn.Do, Batch.StartAll, messages and Dial between two runtimes
//	Go TCP        package net, two goroutines
//	bare UDP      recvfrom and sendto on sockets that both sides poll: the floor of latency (Linux)
//	GSO           UDP with segmentation offload, a CRC and one copy: the floor of bandwidth (c/gso.c)
//	UCX           ucx_perftest with UCX_TLS=tcp (Debian: ucx-utils)
//	libfabric     fi_pingpong (Debian: libfabric-bin); fabtests is not in Debian
//
// A contender that cannot run, or that fails, is not run again; its rows have the reason.
//
//	command.go    the flags
//	session.go    state shared by trials: the operations of a round, compiled programs
//	trials*.go    the rows of the table
//	contender.go  a contestant, and the reason why it has no figures
//	pair.go       two processes that speak the protocol of package side
//	programs.go   two foreign programs
//	ucx.go        ucx_perftest, and its output
//	libfabric.go  fi_pingpong, and its output
//	gso.go        the floor of bandwidth: its compilation
//	client.go     this program as a client
//	server.go     this program as a server
//	serve_*.go    what a server does
//	load_*.go     the loads that a client runs in a round
//	udp_*.go      the floor of latency, both sides
package peers
