package mem

import (
	"reflect"
	"sync"
)

// plainTypes caches the results of PointerFree, by reflect.Type.
var plainTypes sync.Map

// PointerFree reports whether a T holds no Go pointers, so that it may be stored off-heap. A
// uintptr counts as a number, an unsafe.Pointer as a pointer. It is slow the first time a type is
// seen and takes some tens of nanoseconds afterwards, so it belongs in tests and constructors. It
// may be called from any goroutine.
func PointerFree[T any]() bool {
	t := reflect.TypeFor[T]()
	if v, ok := plainTypes.Load(t); ok {
		return v.(bool)
	}
	ok := pointerFree(t)
	plainTypes.Store(t, ok)
	return ok
}

func pointerFree(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() == 0 || pointerFree(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !pointerFree(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Bool, reflect.Uintptr,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	default:
		return false
	}
}
