package verbs

import "syscall"

// IOBatch is the central call of the contract: everything that a reactor needs from a context at
// one moment, in one call into the provider. [Context.Execute] carries it out in this order:
//
//  1. Recvs are posted, group by group;
//  2. Sends are posted, group by group;
//  3. Arms are armed;
//  4. Polls are polled, repeatedly if Spin is set.
//
// Arming before polling makes sleeping safe: the poll finds a completion from before the arming,
// and a later one raises an event. A packet that a device with sockets ([PollReceiver]) has not received when it arms
// completes something later: the polls of a batch that arms a queue need not receive packets.
//
// The caller owns all slices and records; the provider writes the fields marked "out" and keeps
// nothing. A reused batch allocates nothing.
type IOBatch struct {
	Recvs []RecvGroup
	Sends []SendGroup
	Arms  []ArmGroup
	// Polls names a completion queue with room for completions once at most.
	Polls []PollGroup
	// Spin is how many more times all of Polls may be polled as long as none of them yields a
	// completion. It saves cgo calls for a caller that would poll again at once. A provider
	// without cgo calls polls once. The caller keeps it to microseconds at most: no other
	// goroutine can use the queues meanwhile.
	Spin int
}

// Reset empties the batch and keeps its memory.
func (t *IOBatch) Reset() {
	clear(t.Recvs)
	clear(t.Sends)
	clear(t.Arms)
	clear(t.Polls)
	t.Recvs, t.Sends, t.Arms, t.Polls = t.Recvs[:0], t.Sends[:0], t.Arms[:0], t.Polls[:0]
	t.Spin = 0
}

// SendGroup is one linked list of send work requests for one queue pair: one doorbell.
//
// On failure the list splits at the first refused request: those before it are posted and
// complete; it and those after it were never posted. Extended posting fails as a whole: Accepted
// is then 0 or Count.
type SendGroup struct {
	QP       QP
	Head     uint64 // address of the first SendWR
	Count    int    // length of the list
	Extended bool   // post through ibv_wr_*; needed when the list holds a FLUSH or an ATOMIC_WRITE

	Accepted int           // out: how many were posted
	Errno    syscall.Errno // out: why the next one was refused; 0 when all were posted
}

// RecvGroup is one linked list of receive work requests for one queue pair, or for SRQ when that
// is set. It splits on failure like a SendGroup.
type RecvGroup struct {
	QP    QP
	SRQ   SRQ
	Head  uint64
	Count int

	Accepted int           // out
	Errno    syscall.Errno // out
}

// ArmGroup asks for one event for the next completion of a queue.
//
// Implements: ibv_req_notify_cq.
type ArmGroup struct {
	CQ        CQ
	Solicited bool // only for solicited and failed completions

	Errno syscall.Errno // out
}

// PollGroup takes at most len(WC) completions off a queue.
//
// Implements: ibv_poll_cq.
type PollGroup struct {
	CQ CQ
	WC []WC // memory of the caller, off-heap

	N int // out: completions written
	// Errno is a result. EBUSY means that polling could not start just now: the queue may have completions, so the
	// caller polls again before it sleeps. Every other errno means that the queue is dead (overrun).
	Errno syscall.Errno
}

// PostSend posts n linked requests. It reports how many were accepted and, if
// fewer, an *[OpError] with the errno. It is a convenience over [Context.Execute]
// and allocates.
//
// Implements: ibv_post_send.
func PostSend(qp QP, head uint64, n int) (int, error) {
	t := IOBatch{Sends: []SendGroup{{QP: qp, Head: head, Count: n}}}
	if err := qp.Context().Execute(&t); err != nil {
		return 0, err
	}
	g := &t.Sends[0]
	return g.Accepted, callError("ibv_post_send", qp, g.Errno)
}

// PostRecv posts n linked receives to the queue pair's own receive queue; see
// [PostSend].
//
// Implements: ibv_post_recv.
func PostRecv(qp QP, head uint64, n int) (int, error) {
	t := IOBatch{Recvs: []RecvGroup{{QP: qp, Head: head, Count: n}}}
	if err := qp.Context().Execute(&t); err != nil {
		return 0, err
	}
	g := &t.Recvs[0]
	return g.Accepted, callError("ibv_post_recv", qp, g.Errno)
}

// PostSRQRecv posts n linked receives to a shared receive queue; see
// [PostSend].
//
// Implements: ibv_post_srq_recv.
func PostSRQRecv(srq SRQ, head uint64, n int) (int, error) {
	t := IOBatch{Recvs: []RecvGroup{{SRQ: srq, Head: head, Count: n}}}
	if err := srq.Context().Execute(&t); err != nil {
		return 0, err
	}
	g := &t.Recvs[0]
	return g.Accepted, callError("ibv_post_srq_recv", srq, g.Errno)
}

// Poll takes up to len(wc) completions off a queue. It is a convenience over
// [Context.Execute] and allocates.
//
// Implements: ibv_poll_cq.
func Poll(cq CQ, wc []WC) (int, error) {
	t := IOBatch{Polls: []PollGroup{{CQ: cq, WC: wc}}}
	if err := cq.Context().Execute(&t); err != nil {
		return 0, err
	}
	g := &t.Polls[0]
	return g.N, callError("ibv_poll_cq", cq, g.Errno)
}

// Arm asks for one event; see [ArmGroup]. It is a convenience over
// [Context.Execute] and allocates.
//
// Implements: ibv_req_notify_cq.
func Arm(cq CQ, solicited bool) error {
	t := IOBatch{Arms: []ArmGroup{{CQ: cq, Solicited: solicited}}}
	if err := cq.Context().Execute(&t); err != nil {
		return err
	}
	return callError("ibv_req_notify_cq", cq, t.Arms[0].Errno)
}

func callError(op string, obj Object, e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return &OpError{Op: op, Object: obj.String(), Errno: e}
}
