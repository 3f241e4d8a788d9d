// Package leak fails a test run that leaves something behind: goroutines, descriptors, mappings
// of package mem, or any other resource that a [Gauge] counts.
//
// A package checks its whole run with one file:
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// The check waits for the remaining resources, because a goroutine that was told to end needs a
// moment. It prints those that remain after that, with the stacks of the goroutines and the names
// of the descriptors, and fails the run although all tests passed. [Check] checks a single test.
//
// Descriptors are visible where /proc/self/fd exists (Linux, not in the portable build). A
// fuzzing run is not checked: Go's fuzzing engine keeps descriptors and goroutines of its own,
// and the seeds run in ordinary runs as well.
package leak
