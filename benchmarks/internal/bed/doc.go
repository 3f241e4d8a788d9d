// Package bed is the test bed of the benchmarks' loads: two runtimes on two devices in one
// process, connections between them, and memory on both sides. The measurements are of the first;
// the second only responds, if the device requires that.
//
//	place.go     a device, in the flags of a worker and as a provider
//	bed.go       the two runtimes
//	lists.go     operations started in lists
//	messages.go  a message and its answer
package bed
