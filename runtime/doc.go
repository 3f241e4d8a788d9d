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
// and WRITEs with immediate data wait for a credit, and never meet an empty receive queue. Recv
// gives a leased message; its Release posts the receive again and gives the credit
// back.
//
// A raw connection (Options.Raw) leaves receives to the caller: PostRecv, Send
// without a header and without credits. Its peer need not be a runtime: any program
// of librdmacm's will do, and with Runtime.Prepare, which needs no connection
// manager, any of libibverbs'. Receives that must be there before the peer can send are
// posted to what is not connected yet: a Prepared, or with a connection manager a Pending,
// of Runtime.PrepareDial or Listener.PrepareAccept.
//
// # Starting operations
//
// An [Op] is what is to be done, made by a function (WriteOp, SendOp, FetchAndAddOp, ...) and
// changed by [Op.Imm], [Op.Fence] and [Op.Solicited]. A method of the connection starts it; which
// one says how many there are and where the result goes:
//
//	       a future    the caller waits   a sink
//	one    Start       Do                 StartTo, TryStartTo (never waits for room),
//	                                      StartFromSink (from another sink: cheaper)
//	many   StartAll    DoAll
//
//	r, err := conn.Do(ctx, new(verbena.FetchAndAddOp(remote, 1)))
//
// Write, Read, Send and SendBytes are Start of the operations that are started most, PostRecv is
// that of a receive. Start and StartAll of a [Batch] leave the reactor asleep: for who awaits
// the futures soon.
//
// # Futures
//
// Awaiting a future may run the reactor on the
// caller's goroutine. Cancelling the wait never cancels the operation: its memory
// is the device's until it completes, and a Buffer released before goes back to
// its pool only then.
//
// # What a sender may conclude
//
// The end of an operation says what the peer's device has done, not what the peer's
// program has seen. On an RC connection:
//
//	the starting call fails     nothing was posted: the peer has none of it
//	nil                         acknowledged: a SEND is in a receive of the peer's, a WRITE
//	                            in its memory, the result of a READ or an atomic is here
//	*WCError with Status
//	  REM_*, RNR_RETRY_EXC_ERR  refused by the peer's device: it was not carried out, but of
//	                            several packets some may be in the peer's memory
//	  LOC_*                     failed here, likewise
//	  RETRY_EXC_ERR             not known: the peer's device did not answer
//	  WR_FLUSH_ERR              not known: it was under way when the connection ended
//	the connection's cause      not known: likewise, or it was not posted yet
//
// Not known is carried out in full, in part or not at all. Both of the last forms match, by
// errors.Is, why the connection ended:
//
//	ErrPeerClosed             the peer has disconnected, and acknowledged nothing more
//	                          within 100 ms
//	ErrPeerTimeout            the peer has acknowledged nothing within the bound
//	ErrCancelled              Cancel was called here
//	ErrConnClosed             Abort was called here, or Close, whose context has ended
//	ErrDeviceRemoved          the device here is gone
//
// A peer that disconnects as soon as it has a message may leave the last acknowledgement
// unsent: its queue pair sends none in ERR. So ErrPeerClosed does not say that the
// message is lost. Whoever must know has the peer answer with a message, and is the one
// that disconnects.
//
// # Errors
//
// [RetryOf] tells of every error whether the same call may succeed later, or on a new
// connection; errors.go has them in these groups, and names here for those of the rooms
// below. What was closed here matches net.ErrClosed and os.ErrClosed; a bound that passed
// matches os.ErrDeadlineExceeded, and a context's end the error of that context.
//
// # User code
//
// Sinks, and functions of After and WatchDevice, run holding a reactor's turn, on the
// reactor's goroutine or on one that waits and drives; callbacks (Then, Map), jobs and
// handlers run on goroutines of the runtime's own. None of them can keep the reactor from
// others by not returning:
//
//   - A panic goes to Config.OnPanic. If it was the sink of an operation or message, that
//     connection fails with the *PanicError as its cause; all else goes on. Without
//     OnPanic it ends the program, with its value and its stack. It is raised on a goroutine
//     that nobody can recover on, so net/http, say, does not hide it.
//   - runtime.Goexit ends the goroutine and is no failure; OnPanic is not told. What was
//     to be done behind it is done first, and a goroutine of the runtime's is replaced. What
//     the goroutine was awaiting is discarded.
//
// What blocks does keep it: no sink and no such function may.
//
// Of a context, Done is called once, before anything is taken, and Err only after
// everything was given back: its methods may do what they like. A nil context is refused
// with ErrNilContext, before anything else.
//
// # Trust
//
// Connections are not authenticated and not encrypted. What peers send
// is parsed with bounds.
package runtime
