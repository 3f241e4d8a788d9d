//go:build !race

package mem

// checkPlain checks in race builds only: a look-up by type costs more than the rest of a view.
func checkPlain[T any]() {}
