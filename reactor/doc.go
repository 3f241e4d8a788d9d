// Package reactor is the event loop between the goroutines that submit RDMA operations and the
// verbs objects that carry them out.
//
// One [Reactor] owns a pair of completion queues, their channel and any number of [Queue]s (one
// queue pair each). Any goroutine may submit. The turn is the exclusive right to run the reactor
// (package turn). The holder of the turn runs passes: each pass posts, polls and delivers results.
// The holder is usually the reactor's own goroutine (the loop), or a goroutine that waits for a
// result (a driver).
//
// # The path of an operation
//
//  1. Queue.Transfer checks the request, acquires a slot (or waits until a slot is free), and fills
//     the slot. A slot has a work request, scatter-gather elements and inline bytes at fixed places
//     off the heap.
//  2. Transfer pushes the slot on the queue's submission stack, and puts the queue on the reactor's
//     ready list unless the queue is there already. Transfer wakes the loop only if the loop sleeps.
//  3. A pass takes all queues off the ready list. For each queue the pass moves the requests of the
//     submission stack to the backlog, which is in submission order. It links the oldest requests of
//     the backlog into a list, decides which are signaled, and posts the list. A queue has at most
//     one list of sends in a pass, and each list costs one doorbell.
//  4. Then the pass polls. A completion's wr_id names the queue, the slot, and the slot's kind and
//     generation. A completion that does not match the slot is counted and dropped. The completion
//     of a send also retires the unsignaled sends before that send.
//  5. The pass ends the lease of the request (the hold on a registered buffer) and frees the slot.
//     At the end of the pass it settles the future or calls the sink (complete_deliver.go).
//
// The code of each stage, in the order of the path:
//
//	check, slot  submit.go                          Transfer: acquire; waitSlot waits for a slot
//	fill         submit.go                          fillTransfer
//	submit       submit.go                          submit: stack, ready list, wake-up
//	             submit_batch.go                    BatchSubmitter: many at once
//	             submit_wait.go                     TransferWait: submits and waits for the result; TransferNow: submits and posts
//	             submit_sink.go                     PostFromSink: called by a sink
//	             submit_send.go, submit_request.go  Submit, PostControl: all other requests
//	drive        loop_pass.go, package turn         Drive: a waiting goroutine runs passes
//	gather       post_gather.go                     gather: the ready list; collect, list
//	             post_delay.go                      delay: Config.FlushDelay
//	post         loop_pass.go                       postAndPoll; execute calls the device
//	             post_settle.go                     settlePosts: how much the device took
//	poll         loop_pass.go                       polled
//	complete     complete.go                        dispatch, sent, completeFast
//	             complete_free.go                   leases, slots
//	deliver      complete_deliver.go                deliver: futures and sinks
//
// # Signaling
//
// The last request of each list is always signaled: only a completion ends the requests of the
// list, and there may be no later list. With n = QueueConfig.SignalEvery, every n-th request of a
// list is signaled, too, so that slots are freed while the rest of a long list is outstanding.
//
// # Queue capacity
//
// QueueConfig sets the numbers of a Queue's slots: SendDepth, RecvDepth and ControlDepth. Every
// request holds a slot from submission until the request ends. The queue pair has room for the
// requests of all slots and for the marker (post_settle.go), so the queue pair cannot overflow. The
// completion queues have room for the requests of all Queues, so the completion queues cannot
// overflow either. They grow with the number of Queues, unless Config.CQEntries fixes their
// capacity (qp_cqroom.go).
//
// # Fairness
//
// A busy queue delays the other queues of its reactor only a little. A pass serves every queue on
// the ready list, and posts at most one list of sends of each queue. A list has at most 256 sends.
// A send that brings the list to 1 MiB is the last of the list. The rest of the backlog waits for
// the next pass (post_gather.go). Receives are posted all at once, because posting them moves no
// data. A pass dispatches at most Config.PollBatch completions of each completion queue, oldest
// first. At the end of the pass, results are delivered in the order of completion. The device
// decides how queue pairs share its wire.
//
// # Lost events
//
// While there are Queues, the reactor polls its completion queues at intervals of Config.Recheck,
// even without an event (loop_recheck.go). So if the device loses a completion event, the reactor
// finds the completion at most Config.Recheck late.
//
// # Goroutines
//
// Transfer, Submit, PostRecv, PostRecvLater, Do, Defer and After may be called from any goroutine.
// Callbacks of futures run on a separate goroutine of the reactor, without the turn.
//
// Sinks, and functions given to Watch, Notify, Defer, Do and After, run while the turn is held.
// They must not block. So they must not wait for a slot, and must not call Do, Close, Stats, Stuck
// or Recorded. A sink must not call Flush or Drain either, because their passes would call other sinks
// while this sink runs. If such a function panics or calls runtime.Goexit, the turn is still given up,
// and the functions queued after it still run: see complete_attend.go and Config.OnPanic. The same
// rules hold for a stepped reactor, where these functions run in Step. (A function given to Do runs in
// the call of Do, not in Step.)
//
// The following functions are part of a pass, and must neither panic nor call runtime.Goexit:
// Task.Fn, Lease.End, SinkCache.Release, the functions given to OnFail, OnFlush and Idle, and the
// methods of the device.
package reactor
