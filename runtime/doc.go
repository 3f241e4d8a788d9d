// Package runtime is what a service embeds: connections over RDMA with futures,
// memory that devices may touch, and nothing to poll.
//
// Import it under another name, the standard library's runtime is wanted too:
//
//	import verbena "github.com/verbena-rdma/verbena/runtime"
//
// # Objects
//
//	Runtime ─┬─ Listener ── Conn
//	         ├─ Conn
//	         └─ Memory: Buffer (leased from pools), Region (registered for peers)
//
// # Two modes of a connection
//
// A managed connection (the default) keeps receives posted from a pool before
// its queue pair can receive, and counts with its peer how many are free: Send
// and WriteImm wait for a credit, and never meet an empty receive queue. Recv
// gives a leased message; its Release posts the receive again and gives the credit
// back.
//
// A raw connection (Options.Raw) leaves receives to the caller: PostRecv, Send
// without a header and without credits. Its peer need not be a runtime: any program
// of librdmacm's will do, and with Runtime.Prepare, which needs no connection
// manager, any of libibverbs'.
//
// # Futures
//
// Every operation returns a future. Awaiting it may run the reactor on the
// caller's goroutine. Cancelling the wait never cancels the operation: its memory
// is the device's until it completes, and a Buffer released before goes back to
// its pool only then.
//
// # Trust
//
// Connections are not authenticated and not encrypted. What peers send
// is parsed with bounds.
package runtime
