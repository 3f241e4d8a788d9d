// Package mutate shows that a model sees what a line of the code is for: without the line
// a rule breaks. The mistakes stand in the test; they are built in by go test -overlay.
package mutate
