//go:build race

package mem

import (
	"fmt"
	"reflect"
)

// checkPlain panics unless T is pointer-free, so that race builds verify all types placed
// off-heap.
func checkPlain[T any]() {
	if !PointerFree[T]() {
		panic(fmt.Sprintf("mem: %v holds Go pointers and cannot stand off-heap", reflect.TypeFor[T]()))
	}
}
