// Package regcache caches registrations of memory that the program mapped, so that registering a
// range once more, or a part of one that peers cannot reach, needs no call of the device. It
// handles addresses and access; permission checks and the limit on locked memory are up to the
// owner of the [Cache].
package regcache
