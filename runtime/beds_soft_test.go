//go:build !linux || !cgo || portable

package runtime

// beds are the test beds of this build. They do not include the null device, because this build of
// verbs/ibv loads no libraries.
var beds = []bed{mainBed}

// profileBeds is empty for the same reason.
var profileBeds []bed
