// Package ibv is the provider over libibverbs and librdmacm: every RDMA device
// of the system, and any other library with the same entry points.
//
// # Loading
//
// Nothing is linked. The libraries are opened at run time, when a provider is
// first used, and their functions put into tables (loader.c); the declarations
// are our own (verbs/ibv/abi), so that no -dev package is needed. A library or
// a function that is not there is a [LibraryError] or a [SymbolError]: the
// program runs on. Where cgo or Linux is missing the package compiles and every
// call answers ErrNotSupported.
//
// What the system's headers do inline is done here as they do it: posting,
// polling and arming go through the table in the context, extended calls through
// verbs_context in front of it, if its size says that they are there, and
// ibv_wr_* through the queue pair.
//
// # Layers
//
//	Provider, context, PD, MR, CQ, QP …   the contract of package verbs (Go)
//	frame.go                              a turn as one array of groups, one crossing
//	──────────── cgo ────────────
//	turn.c, post_ex.c                     post, arm, poll, in the order of the turn
//	calls*.h                              one wrapper for each other call
//	──────────── function tables ────────────
//	libibverbs.so.1, librdmacm.so.1
//
// # Which interface
//
// Posting and polling exist twice in libibverbs. Here the ordinary interface is
// the default: a turn has its requests in memory as ibv_post_send takes them, one
// call for a list, and ibv_poll_cq writes completions where the caller reads them.
// The extended one takes three or four calls through pointers for each request
// and up to ten for each completion; it pays where a program would else fill
// structures only to have them read, which this one does not. On the null device,
// whose extended calls copy, a round of one request costs the same either way, and
// one of 16 requests five times as much (BenchmarkExtended). So extended posting is
// used for what only it has, lists with a FLUSH or an ATOMIC_WRITE
// (verbs.SendGroup.Extended), and extended queues when [Config].ExtendedCQ says so.
//
// Calls that not every library, driver or kernel has are looked up when they are
// used: memory on demand and advice (odp.go), memory of other devices, thread
// domains (td.go), the order of data and vendors' options (qpmore.go). What is
// absent anywhere on the way answers ErrNotSupported.
//
// # Who owns what
//
// C is never given a Go pointer that it keeps. An object of C carries a number,
// its context, by which its Go object is found again (registry.go). Work
// requests and completions lie in off-heap memory of the caller, who has the
// layout of the C structures, and are posted where they stand.
//
// # No call waits
//
// libibverbs waits in destroy until the events of an object are acknowledged.
// Events taken are counted here, and Close answers ErrBusy instead. An event
// that is taken while its object is being destroyed is acknowledged at once, so
// that the destroy ends. Channels' descriptors are non-blocking.
//
// # Goroutines
//
// As the contract says: everything but turns may be called from any goroutine,
// and a call under way keeps its object from being closed. A turn passes closed
// objects over, but it must not run while one of its objects is being closed: it
// pays for no lock. That is a data race, and the race detector sees it.
//
// # A device that goes away
//
// After DEVICE_FATAL has been taken, the first call that answers EIO (or the
// other way round) ends the context: from then on turns answer
// ErrDeviceRemoved, and closing an object forgets it, whatever the library says.
package ibv
