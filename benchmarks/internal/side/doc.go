// Package side runs one side of a comparison in a process of its own, so that the goroutines,
// garbage and threads of the other sides do not affect its figures. The process lives through all
// rounds and sleeps on its standard input until the next one.
//
// # Protocol
//
// A line in each direction for each round, in the format of package rounds. A program in C can be
// a side as well as this one.
//
//	child:  ready                       once, when it can begin; or cannot WHY, at any time
//	parent: round ops=1000000 depth=128
//	child:  ok cpu_ns=150000000 ops=1000000
//
// The child ends when its standard input does. Its standard error is for the user.
package side
