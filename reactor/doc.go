// Package reactor is the event loop between the goroutines that submit RDMA operations and the
// verbs objects that carry them out.
//
// One [Reactor] owns a pair of completion queues, their channel and any number of [Queue]s (one
// queue pair each). Any goroutine submits. The turn is the exclusive right to run the reactor
// (package turn). Its holder runs passes: one pass posts, polls and delivers results. The holder is
// usually the reactor's own goroutine (the loop), or a goroutine that waits for a result (a
// driver).
//
// # The path of an operation
//
//  1. Queue.Transfer checks the request, acquires a slot or waits for one, and fills it. A slot has
//     a work request, scatter-gather elements and inline bytes at fixed places in the queue's
//     off-heap arena.
//  2. Transfer pushes the slot on the queue's submission stack, and puts the queue on the reactor's
//     ready list unless it is there already. Transfer wakes the loop only if the loop sleeps.
//  3. A pass takes every queue off the ready list and moves its stack to its backlog, the unposted
//     requests in submission order. The pass links the oldest requests into a list, decides which
//     are signaled, and posts the list. So a queue has at most one doorbell for sends in a pass.
//  4. Then the pass polls. A completion's wr_id names the queue, the slot, and the slot's kind and
//     generation. A completion that does not match the slot is counted and dropped. One that matches
//     also retires the unsignaled requests before it.
//  5. The pass ends the request's lease (its hold on a registered buffer) and frees the slot. At
//     the end of the pass it settles the future or calls the sink (complete_deliver.go).
//
// The code of each stage, in the order of the path:
//
//	check, slot  submit.go                          Transfer: acquire; waitSlot waits for a slot
//	fill         submit.go                          fillTransfer
//	submit       submit.go                          submit: stack, ready list, wake-up
//	             submit_batch.go                    BatchSubmitter: many at once
//	             submit_wait.go                     TransferWait: submits and waits for the result
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
// list, and there may be no later list. In a long list every n-th request is signaled, too, where n
// is QueueConfig.SignalEvery. So slots are freed while the rest of the list is outstanding.
//
// # Queue capacity
//
// A Queue's depths limit its requests between submission and retirement. The queue pair has room
// for these requests and for the marker (post_settle.go), so it cannot overflow. The completion
// queues have room for every send and receive of every Queue, so they cannot overflow either. They
// grow with the number of Queues, unless Config.CQEntries fixes their capacity (qp_cqroom.go).
//
// # Fairness
//
// A busy queue delays the other queues of its reactor little. A pass serves every queue that had
// requests submitted before the pass. For each queue it posts one list of at most 256 sends. The
// list ends earlier with the send that brings it to 1 MiB. The rest of the backlog waits for the
// next pass (post_gather.go). Receives are posted all at once: posting them moves no data. A pass
// dispatches at most Config.PollBatch completions of each completion queue, oldest first. It
// delivers results at its end, in the order of completion. The device decides how queue pairs share
// its wire.
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
// They must not block: they must not wait for a slot, and not call Do, Close, Stats, Stuck or
// Recorded. A sink must not call Flush or Drain either. If such a function panics or calls
// runtime.Goexit, the turn is still given up, and the functions queued after it still run: see
// complete_attend.go and Config.OnPanic. A stepped reactor calls all of them in Step, by the same
// rules; only a function given to Do runs in Do.
//
// Functions that are part of a pass must return: Task.Fn, Lease.End, SinkCache.Release, the
// functions given to OnFail, OnFlush and Idle, and the methods of the device.
package reactor
