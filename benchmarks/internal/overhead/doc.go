// Package overhead is the suite "overhead" of the benchmarks: the cost of the path from a caller
// to the doorbell and back, beside a loop in C that does the same and beside well-known C
// programs.
//
// # How it measures
//
// A [suite.Trial] has sides, each in a process of its own: this program, started again as a
// worker, or a program in C. They run in alternating rounds; a row of the table is the median of
// the rounds. CPU time is the user plus system time of a side's whole process over the operations
// alone, divided by their number.
//
//	command.go   the flags, and the selection of trials
//	session.go   state shared by trials: the loop in C, the machine with Soft-RoCE
//	trials_*.go  the rows of the table, by the device they are measured on
//	cloop.go     the loop in C beside the null device (c/loop.c)
//	worker.go    this program as a side
//	load_*.go    the loads that a worker runs in a round
//	guest*.go    the C programs in the machine with Soft-RoCE (package guest), and ours
//
// # The null device
//
// It accepts requests and completes them, and does nothing else (mode instant), so the measured
// cost is the library's own. The loop in C posts lists of the length that ours had in the same
// round, and has as many of them signaled.
package overhead
