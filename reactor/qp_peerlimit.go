package reactor

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// PeerLimit limits how long a queue waits for its peer. The watchdog checks the limits
// (loop_watchdog.go); they cost an operation nothing.
type PeerLimit struct {
	// Bound is how long sends may be outstanding while none of the queue completes; 0: without
	// limit. Not each request has a completion, so a list with many bytes is given more time: at
	// least its bytes divided by slowestPeer. While n queues of the reactor have sends
	// outstanding, only 1/n of the time counts toward this quotient.
	Bound time.Duration
	// KeepAlive is the longest silence before a zero-byte WRITE probes the peer; 0: no probes. The
	// WRITE needs no key, takes no receive, and is invisible to the peer's program (IBTA C9-88);
	// the peer's queue pair must allow WRITEs, as those of a connection manager do. The reactor
	// sends it only while no send is outstanding, and Bound applies to it as to any request. The
	// queue needs a ControlDepth of at least 1 for it. Every receive ends the silence, and every
	// send that completes, unless the send was local work (BIND_MW, LOCAL_INV). The owner reports
	// messages that arrive by a SharedRecv (NotePeerReceive).
	KeepAlive time.Duration
	// OnTimeout is called once, with the turn held, when Bound has passed. The owner then ends
	// the queue: it moves the queue pair to ERR.
	OnTimeout func(PeerTimeout)
}

// PeerTimeout describes a queue whose peer did not answer.
type PeerTimeout struct {
	Bound       time.Duration // the limit: PeerLimit.Bound, or more for many bytes on a shared wire
	Since       time.Time     // the start of the silence, on the reactor's clock
	Outstanding int           // outstanding sends
	Oldest      Kind          // the kind of the oldest of them
}

// slowestPeer is the throughput, in bytes a second, that all peers of a reactor must reach
// together to count as healthy: 64 Mbit/s, less than Soft-RoCE reaches on an emulated machine.
// With a Bound of 5 s and n queues that have sends outstanding it matters for lists of more than
// 40/n MiB.
const slowestPeer = 8 << 20

// peerLimit is a queue's PeerLimit and the watchdog's state of the last tick. The holder's.
type peerLimit struct {
	PeerLimit
	busy     bool          // sends were outstanding
	timedOut bool          // OnTimeout was called
	head     uint32        // sends ever retired (fifo.head)
	silent   time.Duration // the time busy without a change of head
	// share is the queue's part of silent: a time in which n queues were busy counts as 1/n of it.
	// Devices serve queue pairs in turns, so share is how long the queue had the wire for itself.
	share time.Duration

	probeAt    time.Duration // the next check of KeepAlive, on the timers' clock
	probeSigns uint32        // signs at the last check
	waited     bool          // the last check was a full KeepAlive/2 before probeAt; false after the first check
}

// SetPeerLimit has the watchdog check the queue from now on. A zero PeerLimit removes the limit.
// Bound counts from the moment at which the queue last completed a send or last had none
// outstanding. OnTimeout is called when Bound has passed (later for many bytes, see
// PeerLimit.Bound). It is late by at most an eighth of the smallest Bound on the reactor, plus any
// time in which the process did not run. Call it after Admit; Release removes the limit. It is for
// queues of type RC only: sends of other types do not wait for the peer. Holder only.
//
// Errors: ErrConfig.
func (q *Queue) SetPeerLimit(l PeerLimit) error {
	switch {
	case q.cfg.Type != verbs.QPTRC:
		return fmt.Errorf("%w: a limit for a queue of type %v", ErrConfig, q.cfg.Type)
	case l.Bound < 0 || l.KeepAlive < 0:
		return fmt.Errorf("%w: PeerLimit.Bound is %v and KeepAlive %v, want none below 0", ErrConfig, l.Bound, l.KeepAlive)
	case l.Bound > 0 && l.OnTimeout == nil:
		return fmt.Errorf("%w: a PeerLimit with a Bound and no OnTimeout", ErrConfig)
	case l.KeepAlive > 0 && q.ctrlFree == nil:
		return fmt.Errorf("%w: KeepAlive needs one of ControlDepth", ErrConfig)
	case !q.released && q.r.lookup(q.id) != q: // no tick would check the limit, and Release would not remove it
		return fmt.Errorf("%w: a limit before Admit", ErrConfig)
	}
	q.clearPeerLimit()
	if q.released || l.Bound == 0 && l.KeepAlive == 0 {
		return nil
	}
	q.peerLimit = &peerLimit{PeerLimit: l, head: q.order.head, probeSigns: q.peerSigns()}
	q.r.watchdog.limited++
	q.r.watchdog.wake(q.r)
	return nil
}

func (q *Queue) clearPeerLimit() {
	if q.peerLimit != nil {
		q.peerLimit = nil
		q.r.watchdog.limited--
	}
}

// checkPeer checks the queue's Bound at a tick. The argument step is the time since the previous
// tick, crowd the number of queues that were busy in it, including this one. It returns the time
// until this queue must be checked again, and whether its time is up.
func (q *Queue) checkPeer(step time.Duration, crowd int) (wait time.Duration, up bool) {
	l, among := q.peerLimit, time.Duration(max(crowd, 1))
	busy := q.order.len() > 0
	if !busy || !l.busy || l.head != q.order.head {
		l.busy, l.head, l.silent, l.share = busy, q.order.head, 0, 0
	} else {
		l.silent += step
		l.share += step / among
	}
	if !busy || l.Bound == 0 || l.timedOut {
		return never, false
	}
	if l.silent < l.Bound {
		return l.Bound - l.silent, false
	}
	need := q.need() // not earlier: it visits the requests
	if l.share >= need {
		return 0, true
	}
	return min(need-l.share, never/among) * among, false
}

// need returns the time that slowestPeer takes for the bytes of the outstanding requests, from the
// oldest to the first signaled one, which must complete next.
func (q *Queue) need() time.Duration {
	var bytes uint64
	for at := q.order.head; at != q.order.tail; at++ {
		i := q.order.at[at&q.order.mask]
		bytes += uint64(q.tab.bytes[i])
		if q.tab.sendWR[i].Flags&verbs.SendSignaled != 0 {
			break
		}
	}
	return time.Duration(float64(bytes) / slowestPeer * float64(time.Second))
}

// peerSigns counts the signs of the peer: receives, and sends that the peer answered. The count
// wraps.
func (q *Queue) peerSigns() uint32 { return q.peerReceives + q.order.head - q.localSends }

// NotePeerReceive records a message of the queue's peer that a SharedRecv took. Holder only.
func (q *Queue) NotePeerReceive() { q.peerReceives++ }

// reportTimeout calls OnTimeout if no send has completed since checkPeer. The caller has polled
// the waiting completions meanwhile.
func (q *Queue) reportTimeout(now time.Duration) {
	l := q.peerLimit
	if l == nil || l.timedOut || q.order.len() == 0 || q.order.head != l.head {
		return
	}
	need := q.need()
	if l.Bound == 0 || l.silent < l.Bound || l.share < need { // the OnTimeout of another queue changed the limit
		return
	}
	bound := l.Bound
	if need > 0 { // stretched, because the wire was shared; share >= need, so it is not 0
		bound = max(bound, time.Duration(float64(need)*float64(l.silent)/float64(l.share)))
	}
	l.timedOut = true
	q.r.stats.PeerTimeouts++
	oldest := q.order.at[q.order.head&q.order.mask]
	l.OnTimeout(PeerTimeout{
		Bound: bound, Since: q.r.timers.base.Add(now - l.silent),
		Outstanding: q.order.len(), Oldest: q.tab.slots[oldest].kind,
	})
}

// keepAlive checks every KeepAlive/2 for a sign of the peer since the last check, and sends a
// probe if there was none. So a probe follows the last sign by KeepAlive/2 to KeepAlive. The
// answer is a sign, too, so an idle queue sends one probe in KeepAlive. The function returns the
// time until the next check, and whether it sent a probe.
func (q *Queue) keepAlive(now time.Duration) (wait time.Duration, asked bool) {
	l := q.peerLimit
	if l.KeepAlive == 0 {
		return never, false
	}
	if now >= l.probeAt {
		quiet := l.waited && q.peerSigns() == l.probeSigns
		half := max(l.KeepAlive/2, 1)
		// Check at the same moments for all queues, so that one wake-up serves them. Only the
		// first check, when the limit is set, is at another moment.
		l.waited = l.probeAt != 0
		l.probeAt, l.probeSigns = (now/half+1)*half, q.peerSigns()
		if quiet && q.order.len() == 0 && q.failed.get() == nil {
			// PostControl fails if control requests are outstanding: they serve as a probe.
			asked = q.PostControl(&Send{Opcode: verbs.WRRDMAWrite, Sink: keepAliveSink{q}}, Payload{}) == nil
		}
		if asked {
			q.r.stats.KeepAlives++
		}
	}
	return l.probeAt - now, asked
}

// keepAliveSink receives the outcome of a probe; a success needs no action. If the probe has a
// failed completion, the queue's owner is notified already. If the device did not take the probe,
// only this sink receives the error, and an idle queue may have no later request: so the sink
// fails the queue.
type keepAliveSink struct{ q *Queue }

// Complete implements [Sink].
func (a keepAliveSink) Complete(_ SinkContext, _ Completion, err error) {
	if err == nil || a.q.failed.get() != nil {
		return
	}
	if _, completed := errors.AsType[*verbs.WCError](err); !completed {
		a.q.breakWith(err)
	}
}
