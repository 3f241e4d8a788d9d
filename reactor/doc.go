// Package reactor is the event loop between those who ask for RDMA operations
// and the verbs objects that carry them out.
//
// One [Reactor] owns a pair of completion queues, their channel and any number
// of [Queue]s (a queue pair each). Any goroutine submits; whoever holds the
// reactor's turn (package turn) posts, polls and settles.
//
// # The way of one operation
//
//  1. Queue.Transfer checks the request and takes a slot, or waits for one. The slot
//     has its work request, its scatter-gather elements and its inline bytes at
//     fixed places in the queue's off-heap arena; Transfer writes them there.
//  2. The slot goes on the queue's submission stack; a queue that becomes
//     non-empty goes on the reactor's ready list. The bell is rung only when
//     the reactor sleeps.
//  3. A turn takes every ready queue, moves its stack to its backlog, links the first of
//     that in submission order, decides which requests are signaled, and posts one list
//     per queue: one doorbell per queue and turn.
//  4. The same turn polls. A completion's wr_id names queue, slot, kind and
//     generation; what does not match is counted and dropped. A signaled
//     completion retires the unsignaled requests before it.
//  5. The lease ends and the slot goes back; when the turn is done, the future
//     is settled or the sink is called (complete_deliver.go).
//
// Where each stage stands, in the order of the way:
//
//	check, slot  submit.go                          Transfer: transfers, enter; room waits for a slot
//	fill         submit.go                          fillTransfer
//	submit       submit.go                          submit: stack, ready list, bell
//	             submit_batch.go                  Several: many at once
//	             submit_wait.go                     TransferWait: the holder's own
//	             submit_sink.go                   Follow: a sink's
//	             submit_send.go, submit_request.go  Submit, PostControl: all other requests
//	drive        loop_pass.go, package turn         Drive: a waiting goroutine makes turns
//	gather       post_gather.go                     gather: the ready list; collect, list
//	             post_delay.go                       keep: Config.FlushDelay
//	post         loop_pass.go                       postAndPoll; crossing calls the device
//	             post_settle.go                     settlePosts: what it took
//	poll         loop_pass.go                       polled
//	complete     complete.go                        dispatch, sent, succeeded
//	             complete_free.go                 leases, slots
//	deliver      complete_deliver.go                deliver: futures and sinks
//
// # Signaling
//
// In a long list one request in QueueConfig.SignalEvery is signaled, by default one in 32
// or in half of the queue's depth, so that room comes back while the rest is under way;
// the count goes on from list to list. The last of each list always is: its future, its
// slot and its lease end with a completion that retires it, and nobody can tell whether
// a list will follow. So short lists have as many completions as doorbells.
//
// # Room
//
// A queue of depth n never has more than n requests between submission and retirement,
// and its queue pair is made with room for them and one more (the marker, see
// post_settle.go). Completion queues have room for every send and receive of
// every queue, signaled or not, so that neither queue can overflow; they grow
// with the queues, unless their capacity was chosen (qp_cqroom.go).
//
// # Fairness
//
// Whatever one queue has, others of its reactor wait little for it. What is submitted
// before a turn is posted in it. A turn posts for a queue a list of at most 256
// requests, which ends with the one that makes it 1 MiB; the rest goes first in the next
// turn (post_gather.go). A completion waits for those that were in its completion queue before
// it, of which a turn dispatches Config.PollBatch: at most one for each request out, and
// in long lists of sends one in SignalEvery. Results are delivered after each turn, in
// the order of completion. Receives are posted all at once: nothing moves then. How a
// device shares its wire among queue pairs is the device's.
//
// # Lost events
//
// A device that loses a completion event delays the completion by at most
// Config.Recheck: while there are queues the reactor looks at its completion
// queues that often, and arms them anew (loop_recheck.go).
//
// # Goroutines
//
// Transfer, Submit, PostRecv, PostRecvLater, Do, Defer and After may be called from any goroutine.
// Sinks, event handlers and functions given to Do run holding the turn: they
// must not block, and may call anything here but what waits for room, Do, Stats and Close.
// Callbacks of futures run on a goroutine of the reactor's own, without the turn.
//
// What these do not return from (panic, runtime.Goexit) keeps neither the turn nor the
// others behind them: see complete_attend.go and Config.OnPanic. A stepped reactor calls them on the
// goroutine that steps it, by the same rules. Parts of a turn must return: Task.Fn,
// Lease.End, Stock.Release, what OnFail, OnFlush and Idle are given, and the device.
package reactor
