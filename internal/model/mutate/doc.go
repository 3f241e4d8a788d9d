// Package mutate shows that a model needs a line of the code: without the line a rule breaks. The
// test lists the edits; go test -overlay builds them in.
package mutate
