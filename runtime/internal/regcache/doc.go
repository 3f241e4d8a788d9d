// Package regcache caches registrations of memory that the program mapped. Registering the same range
// again, or a part of it, needs no call of the device. A registration with remote access is never
// shared or kept: its key belongs to one user, and ends when that user ends it. The package handles
// addresses and access flags. The owner of the [Cache] checks permissions and the limit on locked
// memory.
package regcache
