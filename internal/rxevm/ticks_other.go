//go:build !amd64

package rxevm

const counts = false

func ticks() uint64 { return 0 }
