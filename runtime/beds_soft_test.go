//go:build !linux || !cgo || portable

package runtime

// beds are the test beds of this build. They do not include the null device, because this build of
// verbs/ibv loads no libraries.
var beds = []bed{mainBed}
