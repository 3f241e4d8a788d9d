// Package reactor is the event loop between the goroutines that submit RDMA operations and the
// verbs objects that carry them out.
//
// One [Reactor] owns a pair of completion queues, their channel and any number of [Queue]s (one
// queue pair each). Any goroutine submits; the holder of the reactor's turn (package turn)
// posts, polls and delivers.
//
// # The path of an operation
//
//  1. Queue.Transfer checks the request and acquires a slot, or waits for one. Each slot has
//     its work request, scatter-gather elements and inline bytes at fixed places in the queue's
//     off-heap arena; Transfer writes them there.
//  2. Transfer pushes the slot on the queue's submission stack. A queue that becomes non-empty
//     goes on the reactor's ready list. The submitter wakes the loop only if it sleeps.
//  3. A pass takes every queue off the ready list, moves its stack to its backlog, links the
//     oldest requests in submission order, decides which are signaled, and posts one list per
//     queue: one doorbell per queue and pass.
//  4. The same pass polls. A completion's wr_id names queue, slot, kind and generation; a
//     completion that does not match is counted and dropped. A signaled completion retires the
//     unsignaled requests before it.
//  5. The lease ends and the slot is freed. After the pass the future is settled or the sink is
//     called (complete_deliver.go).
//
// The code of each stage, in the order of the path:
//
//	check, slot  submit.go                          Transfer: acquire; waitSlot waits for a slot
//	fill         submit.go                          fillTransfer
//	submit       submit.go                          submit: stack, ready list, wake-up
//	             submit_batch.go                    BatchSubmitter: many at once
//	             submit_wait.go                     TransferWait: the holder's own
//	             submit_sink.go                     PostFromSink: a sink's
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
// In a long list one request in QueueConfig.SignalEvery is signaled, so that slots are freed while
// the rest is outstanding. The default is one in min(32, SendDepth/2); the count continues from
// list to list. The last request of each list is always signaled: only a completion ends its
// future, slot and lease, and there may be no next list. So a short list has one completion for
// its one doorbell.
//
// # Queue capacity
//
// A queue of depth n never has more than n requests between submission and retirement. Its queue
// pair has room for these and for the marker (post_settle.go), so it cannot overflow. The
// completion queues have room for every send and receive of every Queue, signaled or not, so they
// cannot overflow either. They grow with the number of Queues, unless Config.CQEntries fixes their
// capacity (qp_cqroom.go).
//
// # Fairness
//
// A busy queue delays the other queues of its reactor little. A pass serves every queue that had
// requests submitted before the pass. For each queue it posts one list of sends, which ends with
// the 256th request or with the one that brings the list to 1 MiB; the rest of the backlog waits
// for the next pass (post_gather.go). Receives are posted all at once: posting them moves no data.
// A pass dispatches at most Config.PollBatch completions of each completion queue, oldest first.
// Results are delivered after each pass, in the order of completion. The device decides how queue
// pairs share its wire.
//
// # Lost events
//
// If a device loses a completion event, the completion is found at most Config.Recheck late: while
// there are Queues, the reactor polls its completion queues at this interval without an event
// (loop_recheck.go).
//
// # Goroutines
//
// Transfer, Submit, PostRecv, PostRecvLater, Do, Defer and After may be called from any
// goroutine. Sinks, event handlers and functions given to Do run while the turn is held: they
// must not block, and may call anything in this package except functions that wait for a slot,
// Do, Stats and Close. Callbacks of futures run on a separate goroutine of the reactor, without
// the turn.
//
// If a sink, handler or function given to Do does not return (panic, runtime.Goexit), the turn is
// still given up and the functions queued after it still run: see complete_attend.go and
// Config.OnPanic. A stepped reactor calls all of them on the goroutine that calls Step, by the
// same rules. Functions that are part of a pass must return: Task.Fn, Lease.End,
// SinkCache.Release, the functions given to OnFail, OnFlush and Idle, and those of the device.
package reactor
