// Package suite is the common part of the benchmark suites: a new suite consists of its trials,
// its loads, and little else.
//
//	command.go  the command: the flags of all suites, messages, exit codes, table and JSON
//	trial.go    sides that run in rounds, and the rows of the table made from them
//	worker.go   this program as a side: loads, their rounds, the resources used
//	values.go   the names of arguments and results of rounds, figures of them, percentiles
package suite
