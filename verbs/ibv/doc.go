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
