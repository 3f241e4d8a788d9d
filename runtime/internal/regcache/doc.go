// Package regcache caches registrations of memory that the program mapped. Registering the same
// range again needs no call of the device; without remote access this holds for a part of the
// range, too. The package handles addresses and access flags. The owner of the [Cache] checks
// permissions and the limit on locked memory.
package regcache
