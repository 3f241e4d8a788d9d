// Package regcache keeps registrations of memory that the program mapped, so that
// registering a range once more, or a part of one that peers cannot reach, costs no
// call of the device. It knows addresses and access; who asks, and what may be locked,
// is for the memory that has the [Cache].
package regcache
