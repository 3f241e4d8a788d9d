// Package scale is the suite "scale" of the benchmarks: the cost of a connection when there are
// ten thousand of them in one process: its memory, the time to make it, and the cost of the idle
// connections for an active one.
//
// # How it measures
//
// Both ends are in one process, two runtimes on two devices, so the figures of a connection
// include both its ends. A worker process (this program, started again) runs one load and lives
// through all rounds:
//
//	connect   makes n connections, 16 at a time, measures the growth of the process,
//	          closes all and frees the memory: one round
//	latency   has n idle connections, and writes 8 bytes on one more, one write after
//	          the other, each timed
//
// # Figures
//
// Resident memory is as reported by the system (Linux only); the heap is the part in use after a
// collection; off-heap memory is the mapped part, resident or not: receive buffers that have not
// received a message are mapped and not resident on the software RNIC, while a kernel device
// would pin them.
//
//	command.go  the flags
//	trials.go   the rows
//	worker.go   this program as a side
//	loads.go    the loads that a worker runs
package scale
