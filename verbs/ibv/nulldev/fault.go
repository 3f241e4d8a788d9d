package nulldev

import (
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Mode is what devices do with work requests; see the package comment.
type Mode uint32

// The modes.
const (
	Loopback Mode = 0
	Instant  Mode = 1
)

// FaultKind is what goes wrong.
type FaultKind uint32

// The faults.
const (
	// FailCall has a call fail with Fault.Err.
	FailCall FaultKind = 1
	// BadWR has a post fail at its request number Fault.At, from 0, with
	// Fault.Err: those before it are posted. A post that is shorter succeeds.
	// Call is ibv_post_send, ibv_post_recv, ibv_post_srq_recv, or
	// ibv_wr_complete, which fails whole.
	BadWR FaultKind = 2
	// Overrun has a completion find its queue full: CQ_ERR.
	Overrun FaultKind = 3
	// LostEvent has a completion event not be delivered: the queue is not armed
	// any more, and nobody was told.
	LostEvent FaultKind = 4
	// LateFlush has the requests of queue pairs that go to ERR flushed only when
	// their completion queue was polled Fault.At times, or, with 0, when the queue
	// pair is destroyed; those completions then stay in the queue. Count does not
	// matter: it is so until Clear.
	LateFlush FaultKind = 5
	// StaleCompletion has the completion that a queue got before come once more,
	// in front of a new one.
	StaleCompletion FaultKind = 6
	// Leftover has a destroyed queue pair's completions stay in their queues, with
	// one more that says its last request succeeded.
	Leftover FaultKind = 7
	// Fatal kills the device of a call, at that call: DEVICE_FATAL, and then EIO
	// from everything but destroying.
	Fatal FaultKind = 8
	// Missing has a completion never come: its request was carried out, and nobody
	// hears of it.
	Missing FaultKind = 9
)

// How a failing call says so. Calls that return a pointer return NULL and set
// errno; rdma_ calls return -1 and set errno, but for Negative.
type How uint32

// The habits of libraries (semantics 23).
const (
	ByErrno  How = 0 // the errno is what is returned, as documented
	MinusOne How = 1 // -1, and errno is set
	Negative How = 2 // the negative errno
)

// Fault is one scripted fault. It strikes at the Nth thing of its kind from now
// on (0 and 1: the next), and at the Count-1 things after it; Count 0 is for
// ever. Set Count to 1 for a single one.
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
	SendWRs, RecvWRs   uint64 // requests they took
	Doorbells          uint64
	Polls, EmptyPolls  uint64
	Completions        uint64 // written into completion queues
	Events, LostEvents uint64 // completion events
	Unacked            uint64 // events of all kinds taken and not acknowledged
	Locked             uint64 // bytes of regions that are not on demand, nor another device's
	Advised            uint64 // bytes that AdviseMR brought in
	TDRaces            uint64 // posts of one thread domain at the same time
	Contexts           int
	Objects            verbs.ObjectCount // what is alive
}
