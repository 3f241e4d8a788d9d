// Package bed is what the loads of the benchmarks run on: two runtimes on two devices in
// one process, connections between them, and memory on both sides. What is measured is
// what happens at the first; the second only answers, if the device has that.
//
//	place.go  a device, in the flags of a worker and as a provider
//	bed.go    the two runtimes
package bed
