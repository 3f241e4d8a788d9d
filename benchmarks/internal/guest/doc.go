// Package guest runs pairs of programs in the machine with Soft-RoCE (internal/rxevm) as sides of the suites: this program beside
// others, on rxe0 and rxe1.
//
//	guest.go    the machine, booted when a side first needs it, and pairs of programs as sides
//	machine*.go how it is booted, and how a pair is run in it
package guest
