// Package runtime provides RDMA connections whose operations return futures, and memory
// that RDMA devices may access. Programs never poll: the package runs the event loops.
//
// The package has the same name as package runtime of the standard library, so import it under
// another name:
//
//	import verbena "github.com/verbena-rdma/verbena/runtime"
//
// A server accepts a connection and receives a message (error handling is omitted):
//
//	rt, err := verbena.Open(verbena.Config{})
//	ln, err := rt.Listen(":7471")
//	conn, err := ln.Accept(ctx)
//	msg, err := conn.RecvWait(ctx)
//	fmt.Printf("%s\n", msg.Data)
//	err = msg.Release()
//
// A client connects and sends a message:
//
//	conn, err := rt.Dial(ctx, "10.0.0.2:7471")
//	sent, err := conn.SendBytes(ctx, []byte("hello"))
//	_, err = sent.Await(ctx)
//	err = conn.Close(ctx)
//
// The examples directory of the module has complete programs. Package runtime/actor builds
// actors on top of this package.
//
// # Objects
//
//	Runtime ─┬─ Listener ── Conn
//	         ├─ Conn
//	         └─ Memory: Buffer (leased from pools), Region (registered for peers)
//
// A [Runtime] represents an open device: an RDMA device, or a software RNIC inside the
// process. Config.Device or the environment variable VERBENA_DEVICE selects the device. The
// runtime runs one or more reactors (Config.Reactors). A reactor is an event loop that posts work
// requests and polls completions. Each [Conn] belongs to one reactor.
//
// Devices access only registered memory, which is never on the Go heap. [Runtime.Alloc] leases a
// [Buffer] from a pool, for local use. A [Region] can be opened to peers: [Region.Remote] returns
// a descriptor of a part of the region. A peer that has this descriptor can read and write that
// part. A [Slice] is a range of a Buffer or a Region. Operations use slices as local memory.
//
// The program closes the runtimes, listeners, connections and regions that it opens, and
// releases buffers and messages. Methods may be called from any goroutine unless they say
// otherwise.
//
// # Managed and raw connections
//
// A managed connection, the default, posts its receives itself, before the peer can send. The
// peer has credits; there is a posted receive for each. A SEND, or a WRITE with immediate data, waits
// for a credit, so it always finds a posted receive. [Conn.Recv] delivers a message in a leased
// buffer. [Message.Release] gives the buffer back, and returns the credit to the peer. [Conn.RecvMany]
// takes all messages that have arrived. [Conn.Call] and [Message.Reply] are for questions and answers, and [Message.Question] for slow answers.
//
// The connections of a reactor share their receives. A new connection has one credit, and gets more as
// it uses them. Idle connections give them back. So memory grows with traffic, not with the number of
// connections. Options.RecvCredits gives a connection a fixed number of receives of its own instead.
//
// A message that is longer than a receive of the peer (Options.MessageSize) takes another way: when its program
// receives (or sends one, too), the peer reads the message from the sender's memory, up to Options.MaxMessage. So the memory belongs
// to the device until the peer has read the message, and only then the future of the SEND is settled.
//
// A raw connection (Options.Raw) leaves receives to the program, which calls [Conn.PostRecv].
// Messages carry no header and need no credit. The peer may be any librdmacm program.
// [Runtime.Prepare] makes a raw connection without a connection manager; its peer may be any
// libibverbs program.
//
// A program can post receives before the peer of a raw connection can send. Without a connection
// manager, it posts them on the [Prepared]. With a connection manager, it posts them on the
// [Pending] that [Runtime.PrepareDial] or [Listener.PrepareAccept] returns.
//
// # Starting operations
//
// An [Op] describes an operation. Functions such as [WriteOp], [SendOp] and [FetchAndAddOp] make an
// Op, and [Op.Imm], [Op.Fence] and [Op.Solicited] modify it. The following methods of Conn start
// one operation, or many. The result goes to a future, to the waiting caller, or to a [Sink], an
// interface that the program implements:
//
//	       a future    the caller         a sink
//	one    Start       Do (waits)         StartTo
//	                                      TryStartTo (never waits for room)
//	                                      StartFromSink (cheaper, for use inside a sink)
//	many   StartAll    DoAll (waits)
//
//	op := verbena.FetchAndAddOp(remote, 1)
//	r, err := conn.Do(ctx, &op)
//
// A message is received in the same ways: Recv returns a future, RecvWait waits, RecvTo takes a
// [MessageSink], and RecvMany waits and takes many. Call sends a question and waits for its answer.
//
// Write, Read, Send, SendBytes and PostRecv are shorthands for Start with the most common
// operations. A [Batch] starts operations without waking the reactor. A Batch is for a caller that
// soon awaits the futures of these operations.
//
// # Futures
//
// A goroutine that awaits a future may run the reactor itself until the future is settled.
//
// If a wait is canceled, the operation continues, and the future keeps its result: another Await
// gets the result, and Discard gives it up. The device owns the operation's memory until the
// operation completes. The program may release a Buffer earlier: the Buffer then returns to its
// pool when the operation completes. [Conn.Cancel] ends all operations of a connection, and the
// connection itself.
//
// # What a sender may conclude
//
// The result of an operation reports what the peer's device has done, not what the peer's program
// has done. On an RC connection:
//
//	the starting call fails     nothing was posted, and nothing reaches the peer
//	nil                         acknowledged: a SEND is in one of the peer's receives, or was
//	                            read by the peer, a WRITE is in the peer's memory, the result of a READ or atomic
//	                            is in the local memory
//	*WCError with Status
//	  REM_*, RNR_RETRY_EXC_ERR  refused by the peer's device: not carried out, but the data of
//	                            some packets may be in the peer's memory
//	  LOC_*                     failed at the local device, but the data of some packets may
//	                            be in the peer's memory
//	  RETRY_EXC_ERR             unknown: the peer's device did not answer
//	  WR_FLUSH_ERR              unknown: outstanding when the connection ended
//	the connection's cause      unknown: outstanding when the connection ended, or not posted
//
// Unknown means that the operation was carried out in full, in part or not at all. The errors of
// the last two rows also match, by errors.Is, the reason why the connection ended:
//
//	ErrPeerClosed               the peer disconnected, and acknowledged nothing more
//	                            within 200 ms
//	ErrPeerTimeout              the peer acknowledged nothing in time (Options.PeerTimeout)
//	ErrCancelled                the program called Cancel
//	ErrConnClosed               the program called Abort, or the context of Close ended
//	ErrDeviceRemoved            the local device is gone
//
// If a peer disconnects as soon as it has received a message, the message may stay unacknowledged:
// disconnecting moves the peer's queue pair to ERR, and a queue pair in ERR sends no
// acknowledgments. So ErrPeerClosed does not mean that the message was lost. If the sending program
// needs certainty, the receiving program must answer with a message, and the sending program must
// not disconnect before it has received the answer.
//
// # Errors
//
// [RetryOf] reports for each error of this module whether the same call may succeed later, or on a
// new connection, or never. The error variables of this package are grouped by the action that they
// call for. They include the errors of the packages verbs, reactor and futures. Errors that mean
// that this program closed an object match net.ErrClosed and os.ErrClosed. Timeouts match
// os.ErrDeadlineExceeded. If a context ended the call, the error matches the context's error.
//
// # Callbacks into the program
//
// One goroutine at a time runs a reactor: the reactor's own goroutine, or a goroutine that awaits a
// future. That goroutine holds the reactor's turn, and the comments of this package call it the
// holder. The holder calls sinks, and the functions given to After and WatchDevice. These sinks and
// functions must not block: while they run, all connections of the reactor wait. Options.Admit,
// actors, and the functions given to Then, Map and Handle run on other goroutines of the runtime.
//
// The reactor continues if one of these functions panics or calls runtime.Goexit:
//
//   - If Config.OnPanic is set, it receives the panic. If the function was the sink of an
//     operation or message, the connection of the sink fails with the *PanicError as its cause.
//     Everything else goes on.
//   - If Config.OnPanic is not set, the panic ends the program with the panic's value and stack.
//     The runtime raises the panic again on a goroutine of its own, so the program cannot recover
//     it. (On the calling goroutine net/http, for example, would recover the panic.)
//   - runtime.Goexit ends the goroutine that called the function. First the runtime completes the
//     rest of that goroutine's work. If the goroutine was awaiting a future, the future is
//     discarded. If the goroutine belonged to the runtime, a new goroutine replaces it. Goexit is
//     not a failure: OnPanic is not called.
//
// The methods of a context may be code of the program, which may panic or block. So a function with
// a context argument calls Done one time, before it acquires any resource, and calls Err only while
// it holds no resource. If the context is nil, the function returns ErrNilContext before it does
// anything else.
//
// # Security
//
// Connections are neither authenticated nor encrypted. A listener exposes memory to the network: any
// process that reaches its port can connect, send messages, and access the memory whose descriptors
// the program sends on that connection. Options.Admit can refuse requests, but the peer's address in
// a request may be forged. Data from peers is parsed with bounds checks.
package runtime
