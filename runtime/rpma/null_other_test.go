//go:build !linux || !cgo || portable

package rpma

// nullBeds is empty: this build of verbs/ibv loads no libraries.
var nullBeds []bed
