//go:build !linux || !cgo || portable

package reactor_test

// moreBeds is empty here: the null device needs Linux and cgo.
var moreBeds []bed
