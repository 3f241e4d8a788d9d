package sys

import "unsafe"

// Same reports whether two interfaces of type I refer to the same pointer. It compares two words,
// where == calls the Go runtime, which is too slow for each operation. For values that are not
// pointers it may return false although they are equal. I must be an interface type.
func Same[I any](a, b I) bool {
	type words [2]unsafe.Pointer // as long as every interface
	x, y := (*words)(unsafe.Pointer(&a)), (*words)(unsafe.Pointer(&b))
	return x[1] == y[1] && x[0] == y[0]
}
