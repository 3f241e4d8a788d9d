// Package cpu measures the processor time of the process. Benchmarks divide it by their
// operations, because on a shared machine it varies less than elapsed time, and because it counts
// the work of all threads, also of those that spin.
package cpu
