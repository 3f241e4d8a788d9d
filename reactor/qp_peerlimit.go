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
	// limit. Completions come for lists, not for each request, and a list with many bytes takes
	// longer: it has at least the time that slowestPeer needs for it, alone on the wire. Time in
	// which several queues of the reactor have sends outstanding counts for each of them as its
	// share of it.
	Bound time.Duration
	// KeepAlive is the longest silence before a zero-byte WRITE probes the peer; 0: no probes.
	// The WRITE needs no key, takes no receive, and is invisible to the peer's program (IBTA
	// C9-88); the peer's queue pair must allow WRITEs, as those of a connection manager do. It
	// is sent only while nothing is outstanding, and Bound applies to it as to any request. The
	// queue needs one of ControlDepth for it. A receive is a sign of the peer, as is a send that
	// completes, unless it was local work (BIND_MW, LOCAL_INV); the owner reports messages that
	// arrive by a SharedRecv (Heard).
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
// With the default bound of 5 s it matters for lists of more than 40 MiB, divided by the number
// of queues that have sends outstanding.
const slowestPeer = 8 << 20

// peerLimit is a queue's PeerLimit and the watchdog's state of the last tick. The holder's.
type peerLimit struct {
	PeerLimit
	busy     bool          // sends were outstanding
	timedOut bool          // OnTimeout was called
	head     uint32        // sends ever retired (fifo.head)
	silent   time.Duration // the time busy without a change of head
	// share is the queue's part of silent: each moment divided by the number of queues that were
	// busy in it. Devices serve queue pairs in turns, so this is how long the wire would have
	// been silent for this queue alone.
	share time.Duration

	probeAt    time.Duration // the next check of KeepAlive, on the timers' clock
	probeSigns uint32        // signs at the last check
	waited     bool          // the last check was half of KeepAlive before probeAt, not less
}

// SetPeerLimit has the watchdog check the queue from now on. A zero PeerLimit removes the limit.
// OnTimeout is called no earlier than Bound after the queue last completed a send, or was last
// without any, and no later than an eighth of the smallest Bound on its reactor after that, plus
// any time in which the process did not run. Call it after Admit; Release removes the limit. It
// is for queues of type RC only: the sends of others do not wait for the peer. Holder only.
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
	case !q.released && q.r.lookup(q.id) != q: // no tick would check it, and no Release remove it
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

// checkPeer checks the queue at one tick, step after the previous one; crowd is how many queues
// were busy meanwhile, including this one. It returns how long the watchdog may wait as far as
// this queue is concerned, and whether its time is up.
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
	need := q.need() // only now: it reads the requests
	if l.share >= need {
		return 0, true
	}
	return min(need-l.share, never/among) * among, false
}

// need is the time that slowestPeer takes, alone on the wire, for the outstanding requests up to
// the one that must complete next.
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

// peerSigns counts the signs of the peer: receives, and sends that it answered; it wraps.
func (q *Queue) peerSigns() uint32 { return q.peerReceives + q.order.head - q.localSends }

// NotePeerReceive records a message of the queue's peer that a SharedRecv took. Holder only.
func (q *Queue) NotePeerReceive() { q.peerReceives++ }

// reportTimeout calls OnTimeout if no send has completed since checkPeer: the completions that
// waited were polled meanwhile.
func (q *Queue) reportTimeout(now time.Duration) {
	l := q.peerLimit
	if l == nil || l.timedOut || q.order.len() == 0 || q.order.head != l.head {
		return
	}
	need := q.need()
	if l.Bound == 0 || l.silent < l.Bound || l.share < need { // OnTimeout of another queue changed it
		return
	}
	bound := l.Bound
	if need > 0 { // as on a wire that was shared as this one was; share is not 0
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

// keepAlive checks twice in KeepAlive for a sign of the peer, and probes it if there was none: so
// between half of KeepAlive and all of it after the last sign. The answer is a sign, too, so an
// idle queue probes once in KeepAlive. It returns the time until the next check, and whether it
// sent a probe.
func (q *Queue) keepAlive(now time.Duration) (wait time.Duration, asked bool) {
	l := q.peerLimit
	if l.KeepAlive == 0 {
		return never, false
	}
	if now >= l.probeAt {
		quiet := l.waited && q.peerSigns() == l.probeSigns
		half := max(l.KeepAlive/2, 1)
		// Check at the same moments for all queues, so that one wake-up serves them. The first
		// check is when the limit is set, which is not one of those moments.
		l.waited = l.probeAt != 0
		l.probeAt, l.probeSigns = (now/half+1)*half, q.peerSigns()
		if quiet && q.order.len() == 0 && q.failed.get() == nil {
			// It fails when control requests are submitted: they serve as a probe.
			asked = q.PostControl(&Send{Opcode: verbs.WRRDMAWrite, Sink: keepAliveSink{q}}, Payload{}) == nil
		}
		if asked {
			q.r.stats.KeepAlives++
		}
	}
	return l.probeAt - now, asked
}

// keepAliveSink receives the completion of a probe; a success needs no action. If the probe
// failed, the queue's owner is notified already. If the device did not even take it, only this
// sink learns of that, and no request may ever follow: so it fails the queue.
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
