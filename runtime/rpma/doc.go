// Package rpma is librpma for Go: remote access to persistent memory, with the interface that the C library
// had, on the connections of package runtime. It is for programs whose peers use librpma 1.3, and for
// programs that are translated from it. It sends what librpma sends, byte for byte: descriptors, private
// data and requests.
//
// A client writes to a server's memory, and has the data flushed (error handling is omitted):
//
//	peer, err := rpma.NewPeer(rt)
//	req, err := peer.NewConnReq(ctx, "10.0.0.2", "7204", nil)
//	conn, err := req.Connect(nil)
//	event, err := conn.NextEvent(ctx)                         // Established
//	dst, err := rpma.ParseRemoteMR(conn.PrivateData())
//	src, err := peer.NewMR(4096, rpma.WriteSrc)
//	err = conn.Write(dst, 0, src, 0, 4096, rpma.CompletionOnError|rpma.More, 1)
//	err = conn.Flush(dst, 0, 4096, rpma.Visibility, rpma.CompletionAlways, 2)
//	err = conn.CQ().Wait(ctx)
//	n, err := conn.CQ().GetWC(wcs)                            // wcs[0].Context is 2
//	err = conn.Disconnect()
//	event, err = conn.NextEvent(ctx)                          // Closed
//	err = conn.Close(ctx)
//
// The server registers the memory, and accepts:
//
//	dst, err := peer.NewMR(4096, rpma.WriteDst|rpma.FlushVisibility)
//	desc, err := dst.Descriptor()
//	ep, err := peer.Listen(ctx, "10.0.0.2", "7204")
//	req, err := ep.NextConnReq(ctx, nil)
//	conn, err := req.Connect(desc[:])
//
// # Objects
//
//	runtime.Runtime ── Peer ─┬─ MR
//	                         ├─ SRQ ── CQ
//	                         ├─ Endpoint ── ConnReq
//	                         └─ ConnReq ── Conn ── CQ
//
// Objects are closed before the Peer, regions of memory after the connections that use them, and an SRQ
// after its connections. Closing twice does nothing. All methods may be called from any goroutine, but not from
// sinks of package runtime.
//
// # From C to Go
//
//	rpma_utils_get_ibv_context, rpma_peer_new  FindDevice, runtime.Open, NewPeer
//	rpma_mr_reg                                Peer.RegMR; also NewMR, RegRegion
//	rpma_conn_cfg_set_..., NULL                fields of ConnConfig, nil
//	const void *op_context                     a word that comes back as WC.Context
//	negative return values                     an *Error, which matches a Code such as ErrInvalid
//	a non-blocking descriptor                  TryNextEvent, TryNextConnReq, CQ.GetWC
//	rpma_log_set_function                      SetLogFunction, with a handler of log/slog
//
// What is better defined than in C:
//
//   - A call that waits has a context.
//   - No call leaves a value without a meaning: beside an error an event is Undefined.
//   - A CQ cannot overrun: an operation that has no place in it does not start.
//   - CQ.Wait returns if there is a completion, whether or not it came before the last Wait. In C a wait
//     without GetWC before it may sleep beside a completion.
//   - Offsets and lengths are checked against the memory, at both ends. In C the device finds out, and the
//     connection fails.
//   - A ConnReq that is consumed, and every object that is closed, answers with an error.
//   - Calls on one object need no lock of the program.
//   - The send queue goes on without completions: the runtime finds out that operations have succeeded.
//   - Operations can be posted together, by one doorbell: see More.
//
// A nil object in place of memory is an error, as in C, and so is Connect of a nil ConnReq. Other methods of a nil pointer
// panic, where librpma returns RPMA_E_INVAL.
//
// What differs, too: when an operation fails, or the peer disconnects, the runtime disconnects this end. Operations
// that are started after the end of a connection return an error, where librpma posts them and
// they complete with a failure.
//
// # Flushing
//
// The completion of a Write says that the peer's device has the data. A flush of type Visibility takes it to
// where the peer's processors see it, and one of type Persistent to persistent memory. For the latter the
// peer must have declared (PeerConfig) that its device writes past the processor's caches; how the
// program gets the declaration is its own affair. Without that, the program asks the peer by a message to
// flush (librpma's general purpose server persistency method).
//
// # Security
//
// Neither connections nor private data are authenticated or encrypted. The key in a descriptor opens the
// whole memory region to everybody who can connect. See ParsePeerConfig for the danger of a forged
// declaration.
package rpma
