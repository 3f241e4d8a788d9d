// Package pmem is the suite "pmem" of the benchmarks: the latency of appending a record to persistent memory of
// another process, one at a time. An append is a WRITE of the record and a persistent FLUSH; it ends with the FLUSH.
//
//	command.go      the flags, and the state of a run
//	trials.go       the rows of the table
//	worker.go       this program as a side: in this system, and in the guest (package guest)
//	way.go          an append between two runtimes, and how it is timed
//	way_rpma.go     by package rpma: what c/append.c does with librpma
//	way_plog.go     by package plog: an acknowledged record
//	local*.go       write and fdatasync
//	guest.go        the programs in the guest
package pmem
