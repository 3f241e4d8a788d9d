// Package ibv is the provider over libibverbs and librdmacm: all RDMA devices of the system, and
// any other library with the same entry points.
//
// # Loading
//
// Nothing is linked. The libraries are opened at run time, when a provider is first used, and
// their functions put into tables (loader.c). The declarations are our own (verbs/ibv/abi), so
// that no -dev package is needed. A missing library or function is a [LibraryError] or a
// [SymbolError]; the program continues. Without cgo or Linux the package compiles and all calls
// return ErrNotSupported.
//
// The inline functions of the system's headers are repeated here: posting, polling and arming go
// through the table in the context, extended calls through verbs_context in front of it, if its
// size includes them, and ibv_wr_* through the queue pair.
//
// # Layers
//
//	Provider, context, PD, MR, CQ, QP …   the contract of package verbs (Go)
//	frame.go                              a batch as one array of groups, one cgo call
//	──────────── cgo ────────────
//	batch.c, post_ex.c                     post, arm, poll, in the order of the batch
//	calls*.h                              one wrapper for each other call
//	──────────── function tables ────────────
//	libibverbs.so.1, librdmacm.so.1
//
// # Which interface
//
// libibverbs has two interfaces for posting and polling. The default here is the ordinary one: a
// batch has its requests in memory in the form that ibv_post_send takes, one call for a list, and
// ibv_poll_cq writes completions where the caller reads them. The extended interface takes three
// or four calls through pointers for each request and up to ten for each completion. It is faster
// for a program that would otherwise fill structures just for the call, which this one does not.
// On the null device, whose extended calls copy, a round of one request costs the same either
// way, and one of 16 requests five times as much (BenchmarkExtended). So extended posting is used
// only for lists with a FLUSH or an ATOMIC_WRITE (verbs.SendGroup.Extended), and extended queues
// only with [Config].ExtendedCQ.
//
// Calls that some libraries, drivers or kernels lack are looked up when they are used: on-demand
// memory and advice (odp.go), memory of other devices, thread domains (td.go), data order and
// vendors' options (qpmore.go). A call that is missing at any layer returns ErrNotSupported.
//
// # Ownership
//
// C never keeps a Go pointer. A C object carries a number, its context, which identifies its Go
// object (registry.go). Work requests and completions lie in off-heap memory of the caller, with
// the layout of the C structures, and are posted in place.
//
// # No call waits
//
// libibverbs waits in destroy until the events of an object are acknowledged. This package counts
// the events taken, and Close returns ErrBusy instead. An event that is taken while its object is
// being destroyed is acknowledged at once, so that the destroy ends. Channels' descriptors are
// non-blocking.
//
// # Goroutines
//
// As in the contract: all calls except Execute may be made from any goroutine, and a call in
// progress keeps its object from being closed. Execute skips closed objects, but it must not run
// while one of its objects is being closed, because it takes no lock. That is a data race, which
// the race detector reports.
//
// # Removal of a device
//
// The first call that returns EIO after DEVICE_FATAL has been taken (or the other way round) ends
// the context: from then on Execute returns ErrDeviceRemoved, and closing an object forgets it,
// whatever the library returns.
package ibv
