//go:build !linux || portable

package mem

func checkForeign(addr, n uint64) error { return checkHint(addr, n) }
