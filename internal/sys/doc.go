// Package sys has the doors to the operating system that Verbena goes through
// besides memory: sleeping until one of many sources has something, waking a
// sleeper, NUMA topology and placement.
//
// Each door has two builds. On Linux a [Poller] is an epoll set that Go's own
// poller watches, so that a sleeping reactor costs a parked goroutine and no
// thread. Elsewhere, and on Linux under the tag "portable", it is made of
// atomics and a channel, and takes only sources that announce themselves. Code
// written against [Source] and [Poller] runs on both.
//
// # How to sleep without losing a wake-up
//
//	for {
//		n, err := p.Wait(deadline, keys)  // returns at once if something is due
//		drain every source in keys[:n] until it is empty
//		look at whatever Ring announces, even if n > 0
//	}
//
// A Ring or an event that comes while nobody waits is kept for the next Wait.
// Rings are coalesced: several may cause one return. A key may be reported
// although its source turns out to be empty, and the portable build reports a
// key once per announcement: sources are therefore always drained to empty.
package sys
