//go:build !linux || !cgo || portable

package runtime

var beds = []bed{mainBed}
