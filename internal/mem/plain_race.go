//go:build race

package mem

import (
	"fmt"
	"reflect"
)

// checkPlain makes every race run prove that only pointer-free types are
// placed off-heap.
func checkPlain[T any]() {
	if !PointerFree[T]() {
		panic(fmt.Sprintf("mem: %v holds Go pointers and cannot stand off-heap", reflect.TypeFor[T]()))
	}
}
