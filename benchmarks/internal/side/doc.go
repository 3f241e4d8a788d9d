// Package side runs one side of a comparison in a process of its own, so that nothing
// of the other sides, their goroutines, their garbage, their threads, is in its
// figures. The process lives through all rounds and waits for the next on its standard
// input, asleep.
//
// # What goes through the pipes
//
// A line each way for each round, of which package rounds knows the text. A program in
// C can be a side as well as this one.
//
//	child:  ready                       once, when it can begin; or cannot WHY, at any time
//	parent: round ops=1000000 depth=128
//	child:  ok cpu_ns=150000000 ops=1000000
//
// The child ends when its standard input does. What it writes to its standard error
// is for the people in front of the terminal.
package side
