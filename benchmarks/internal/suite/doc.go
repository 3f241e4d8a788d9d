// Package suite is what the suites of the benchmarks have in common: a new one has its
// trials, its loads, and little else.
//
//	command.go  the command: the flags that every suite has, messages, exit codes, table and JSON
//	trial.go    sides that run in rounds, and the rows of the table that come of them
//	worker.go   this program as a side: loads, the rounds of one, what the process used
//	values.go   the names of what rounds are told and find, figures of them, percentiles
//	smoke.go    a suite's command, run by a test
package suite
