// Package scale is the suite "scale" of the benchmarks: what a connection costs when
// there are ten thousand of them in one process: its memory, the time to make it, and
// what those that are idle cost the one that is not.
//
// # How it measures
//
// Both ends are in one process, two runtimes on two devices, so what is said of a
// connection is of both its ends. A worker process (this program, started again)
// does one thing and lives through all rounds:
//
//	connect   makes n connections, 16 at a time, measures what the process has grown
//	          by, closes all and gives the memory back: one round
//	latency   has n connections over which nothing goes, and writes 8 bytes on one
//	          more, one write after the other, each timed
//
// # Figures
//
// Resident memory is what the system says (Linux alone); the heap is what is in use
// after a collection; off the heap is what is mapped, resident or not: receive buffers
// that no message has come to are mapped and not resident on the software RNIC,
// while a device of the kernel would pin them.
//
//	command.go  the flags
//	trials.go   the rows
//	worker.go   this program as a side
//	loads.go    what a worker does in a round
package scale
