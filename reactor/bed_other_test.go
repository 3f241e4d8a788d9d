//go:build !linux || !cgo || portable

package reactor_test

// moreBeds is empty in this build. In other builds it has the null device, which needs Linux and cgo,
// and is left out of builds with the tag portable.
var moreBeds []bed
