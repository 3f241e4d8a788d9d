// Package leak fails a test run that leaves something behind: goroutines,
// descriptors, mappings of package mem, or whatever else a [Gauge] can count.
//
// A package has its whole run watched by one file:
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// What is left at the end is waited for, because a goroutine that was told to go
// needs a moment to go; what is still there after that is printed, with the
// stacks of the goroutines and the names of the descriptors, and the run fails
// although every test passed. One test alone is watched by [Check].
//
// Descriptors are seen where /proc/self/fd is (Linux, not in the portable
// build). A fuzzing run is not watched: Go's fuzzing engine keeps descriptors and
// goroutines of its own, and the seeds run in every ordinary run as well.
package leak
