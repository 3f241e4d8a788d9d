// Package sys wraps the operating system interfaces that Verbena uses besides memory: sleeping
// until one of many sources is ready, waking a sleeper, NUMA topology and placement.
//
// Each has two implementations. On Linux a [Poller] is an epoll set that Go's own poller watches,
// so that a sleeping reactor costs a parked goroutine and no thread. Elsewhere, and on Linux
// under the tag "portable", it consists of atomics and a channel, and accepts only sources that
// announce their events. Code written against [Source] and [Poller] runs on both.
//
// # How to sleep without losing a wake-up
//
//	for {
//		n, err := p.Wait(deadline, keys)  // returns at once if something is due
//		drain each source in keys[:n] until it is empty
//		check the state that Wake announces, even if n > 0
//	}
//
// A Wake or an event that comes while no goroutine waits is kept for the next Wait. Wake-ups are
// coalesced: several may cause one return. A key may be reported although its source is empty,
// and the portable build reports a key once per announcement: sources are therefore always
// drained to empty.
package sys
