package nulldev

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Mode is the devices' treatment of work requests; see the package comment.
type Mode uint32

// The modes.
const (
	Loopback Mode = 0
	Instant  Mode = 1
)

// FaultKind is the kind of a fault.
type FaultKind uint32

// The faults.
const (
	// FailCall makes a call fail with Fault.Err.
	FailCall FaultKind = 1
	// BadWR makes a post fail at its request number Fault.At, from 0, with Fault.Err: those
	// before it are posted. A shorter post succeeds. Call is ibv_post_send, ibv_post_recv,
	// ibv_post_srq_recv, or ibv_wr_complete, which fails as a whole.
	BadWR FaultKind = 2
	// Overrun makes a completion find its queue full: CQ_ERR.
	Overrun FaultKind = 3
	// LostEvent drops a completion event: the queue is no longer armed, and the program is not
	// notified.
	LostEvent FaultKind = 4
	// LateFlush delays the flush of queue pairs that go to ERR until their completion queue was
	// polled Fault.At times, or, with 0, until the queue pair is destroyed; those completions
	// then stay in the queue. It ignores Count and applies until Clear.
	LateFlush FaultKind = 5
	// StaleCompletion repeats the previous completion of a queue in front of a new one.
	StaleCompletion FaultKind = 6
	// Leftover leaves the completions of a destroyed queue pair in their queues, with one more
	// that reports success of its last request.
	Leftover FaultKind = 7
	// Fatal kills the device of a call, at that call: DEVICE_FATAL, and then EIO from all calls
	// except destroying ones.
	Fatal FaultKind = 8
	// Missing drops a completion: its request was executed, but never completes.
	Missing FaultKind = 9
	// LostRequest loses a connection request, and LostReady the last message of a handshake (an RTU).
	// The kernel sends it again after 4.3 s, here after Fault.At milliseconds; with 0 never.
	LostRequest FaultKind = 10
	LostReady   FaultKind = 11
	// StaleConnection rejects a connection request with reason 10, as if the peer still had a connection of an
	// earlier process with the number of the queue pair. From then on it rejects all requests with that number.
	StaleConnection FaultKind = 12
	// QuietFlush makes a flushed completion raise no event, although its queue was armed.
	QuietFlush FaultKind = 13
)

// How is the result of a failing call. Calls that return a pointer return NULL and set errno;
// rdma_ calls return -1 and set errno, except with Negative.
type How uint32

// The conventions of libraries (semantics 23).
const (
	ByErrno  How = 0 // the result is the errno, as documented
	MinusOne How = 1 // -1, and errno is set
	Negative How = 2 // the negative errno
)

// Fault is one scripted fault. It applies to the Nth event of its kind from now on (0 and 1: the
// next), and to the Count-1 events after it; with Count 0 to all later ones. Set Count to 1 for a
// single one.
type Fault struct {
	Kind  FaultKind
	Call  string // FailCall, BadWR, Fatal: the C call; "": every call
	Nth   uint64
	Count uint64
	Err   syscall.Errno
	How   How
	At    uint32
}

// Stats are the counters of a library since it was loaded.
type Stats struct {
	Sends, Recvs       uint64 // posts
	SendWRs, RecvWRs   uint64 // requests they accepted
	Doorbells          uint64
	Polls, EmptyPolls  uint64
	Completions        uint64 // written into completion queues
	Events, LostEvents uint64 // completion events
	Unacked            uint64 // events of all kinds taken and not acknowledged
	Rings              uint64 // bytes of the rings of queues that exist
	Locked             uint64 // bytes of regions that are neither on-demand nor another device's
	Advised            uint64 // bytes that AdviseMR brought in
	TDRaces            uint64 // posts of one thread domain at the same time
	Contexts           int
	Objects            verbs.ObjectCount // live objects
}
