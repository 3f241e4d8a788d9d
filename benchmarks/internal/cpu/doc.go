// Package cpu tells how much processor time a process has used: what a benchmark
// divides by its operations, because on a shared machine it moves less than the
// clock, and because it counts the work of every thread, also of those that spin.
package cpu
