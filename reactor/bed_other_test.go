//go:build !linux || !cgo || portable

package reactor_test

// moreBeds is empty here, because its only bed, the null device, needs Linux and cgo.
var moreBeds []bed
