package sys

import "unsafe"

// Same tells whether two interfaces of type I refer to the same pointer. It is a comparison
// of two words, where == calls the Go runtime: too much for every operation. Of values that
// are no pointers it may say no though they are equal. I must be a type of interfaces.
func Same[I any](a, b I) bool {
	type words [2]unsafe.Pointer // as long as every interface
	x, y := (*words)(unsafe.Pointer(&a)), (*words)(unsafe.Pointer(&b))
	return x[1] == y[1] && x[0] == y[0]
}
