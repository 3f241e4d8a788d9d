// Package rdmacm is librdmacm for Go: its identifiers, its events, its endpoints, and its calls to post
// requests and to take their completions. It is for programmers who know the C library, and for
// programs that are translated from it. Other programs use package runtime, which has futures, flow
// control, bounds for every wait, and memory that is safe after a cancel.
//
//	lib, err := rdmacm.Open(rdmacm.Config{})
//	infos, err := rdmacm.GetAddrInfo(ctx, "10.0.0.1", "7471", nil)
//	id, err := lib.CreateEndpoint(ctx, &infos[0], nil, &rdmacm.QPInitAttr{Cap: ...})
//	mr, err := id.RegMsgs(buf)
//	err = id.PostRecv(1, buf, mr)
//	err = id.Connect(ctx, nil)
//	err = id.PostSend(2, []byte("hello"), nil, verbs.SendSignaled)
//	wc, err := id.GetSendComp(ctx)
//
// # From C to Go
//
//	rdma_create_event_channel          Library.CreateEventChannel
//	rdma_get_cm_event, rdma_ack_...    EventChannel.GetEvent, Event.Ack
//	rdma_create_id, rdma_create_ep     Library.CreateID, Library.CreateEndpoint
//	rdma_post_send and its like        ID.PostSend and its like
//	rdma_get_send_comp                 ID.GetSendComp
//	ibv_post_send, ibv_post_recv       ID.PostSendList, ID.PostRecvList
//	ibv_create_cq, ibv_poll_cq         Device.CreateCQ, CQ.Poll; CQ.Next waits
//	fd of a channel, for poll          EventChannel.Ready, CQ.Ready, for a select
//	ibv_query_srq, ibv_modify_srq      SRQ.Query, SRQ.SetLimit
//	struct sockaddr_ib                 verbs.IBAddr, with ID.BindIB, ID.ResolveIB and ID.JoinMulticastIB
//	void *context                      a word that comes back as WRID
//	-1 and errno                       a *verbs.OpError with the errno
//
// What differs:
//
//   - A call that waits has a context.
//   - Requests are posted and completions are taken by a reactor, one for each device. The goroutine
//     that waits in CQ.Next, GetSendComp or GetRecvComp runs it, so a lone caller has no hand-over.
//   - A completion queue cannot overrun: while it is full, requests are refused with ENOMEM.
//   - A send queue without signaled requests does not stop: the reactor retires its requests.
//   - A send of memory that is not registered is copied, also without INLINE.
//   - A method of a nil pointer that returns an error returns EINVAL. Others panic, as C does; CQ.Poll finds nothing.
//   - A wait for solicited completions alone is not offered; see CQ.Ready.
//   - A list that the device refuses in part is no error of the call, which may have returned already: the
//     refused requests complete with an error, with the errno in VendorErr.
//
// # Connections that nothing tells of their end
//
// A connection whose peer was killed, or is not reached any more, ends when a request gets no answer
// (verbs.WCRetryExcErr). A program without traffic keeps such a connection for good. On the software RNIC that is so
// even if a new process of the peer asks for a connection with the same queue pair number: the request may be
// forged, so it is rejected (verbs.RejStaleConn) and ends nothing, and the peer must ask with another queue pair.
// A program that must know sends from time to time, or uses package runtime, which does (Options.KeepAlive).
//
// # Memory
//
// The rules are those of C. Memory that a request names belongs to the device until the request
// completes or DestroyQP has returned. Nothing keeps the program from touching it. The memory must not
// be of the Go heap. A region or an address handle that is closed before that is an error of the program,
// which nothing detects: the request may complete with an error or reach another peer.
//
// # Goroutines
//
// Every call may be made from any goroutine. Requests that one goroutine posts to a queue pair are
// executed in their order.
package rdmacm
