package reactor

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// PeerLimit is how long a queue waits for its peer. Both are counted by the patrol
// (loop_watchdog.go), never on the way of an operation.
type PeerLimit struct {
	// Bound is how long sends may be out while none of the queue completes; 0: for
	// ever. Completions come for lists, not for each request, and a list with many
	// bytes takes its time: it has at least what slowestPeer needs for it, while it
	// has the wire for itself; time that the queues of the reactor share, because
	// each has sends out, counts for each as its part of it.
	Bound time.Duration
	// KeepAlive is within what time after the peer was last heard of it is asked
	// whether it is there, with a WRITE of nothing: it needs no key, takes no
	// receive, and the peer's program sees nothing of it (IBTA C9-88); the peer's
	// queue pair must allow WRITEs, as those of a connection manager do. It is sent
	// only while nothing is out, and is bounded as any request. 0: never. The
	// queue needs one of ControlDepth for it. A receive is a sign of the peer, as is a
	// send that completes, unless it was local work (BIND_MW, LOCAL_INV); of what
	// arrives by a SharedRecv its owner tells (Heard).
	KeepAlive time.Duration
	// OnTimeout is called once, holding the turn, when Bound has passed. The owner then
	// ends the queue: it moves the queue pair to ERR.
	OnTimeout func(PeerTimeout)
}

// PeerTimeout is a queue whose peer did not answer.
type PeerTimeout struct {
	Bound  time.Duration // what was allowed: Limit.Bound, or more for many bytes on a shared wire
	Since  time.Time     // from when on it was counted, of the reactor's clock
	Out    int           // sends that were out
	Oldest Kind          // of them
}

// slowestPeer is the bytes a second that all peers of a reactor must move together to
// count as healthy: 64 Mbit/s, below what Soft-RoCE does on an emulated machine. With
// the default bound of 5 s it matters for lists of more than 40 MiB, divided by the
// queues that have sends out.
const slowestPeer = 8 << 20

// peerLimit is a queue's Limit and what the patrol saw at its last look. The
// holder's.
type peerLimit struct {
	PeerLimit
	busy     bool          // sends were out
	timedOut bool          // Late was called
	head     uint32        // sends ever retired (fifo.head)
	silent   time.Duration // how long busy without a change of head
	// share is the queue's part of silent: each moment divided by the queues that were
	// busy in it. Devices take turns between queue pairs, so that this is how long
	// the wire would have been silent for this queue alone.
	share time.Duration

	askAt   time.Duration // when KeepAlive is looked at next, on the timers' clock
	askSeen uint32        // signs as of the last time
	waited  bool          // the last time was half of KeepAlive before askAt, not less
}

// SetPeerLimit has the queue watched from now on; with neither Bound nor KeepAlive
// no more. A bound ends no earlier than Bound after the queue last completed a
// send, or was last without any, and no later than an eighth more of the
// smallest bound on its reactor, plus what the process did not run. It follows Admit,
// and Release ends it. Queues of type RC alone: the others' sends wait for nobody.
// Holder only.
//
// Errors: ErrConfig.
func (q *Queue) SetPeerLimit(l PeerLimit) error {
	switch {
	case q.cfg.Type != verbs.QPTRC:
		return fmt.Errorf("%w: a limit for a queue of type %v", ErrConfig, q.cfg.Type)
	case l.Bound < 0 || l.KeepAlive < 0:
		return fmt.Errorf("%w: Limit.Bound is %v and KeepAlive %v, want none below 0", ErrConfig, l.Bound, l.KeepAlive)
	case l.Bound > 0 && l.OnTimeout == nil:
		return fmt.Errorf("%w: a limit that tells nobody", ErrConfig)
	case l.KeepAlive > 0 && q.ctrlFree == nil:
		return fmt.Errorf("%w: KeepAlive needs one of ControlDepth", ErrConfig)
	case !q.released && q.r.lookup(q.id) != q: // no round would come by, and no Release end it
		return fmt.Errorf("%w: a limit before Admit", ErrConfig)
	}
	q.clearPeerLimit()
	if q.released || l.Bound == 0 && l.KeepAlive == 0 {
		return nil
	}
	q.peerLimit = &peerLimit{PeerLimit: l, head: q.order.head, askSeen: q.signs()}
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

// checkPeer is one look of the patrol, step after the one before; crowd is how many queues
// were busy meanwhile, this one with them. It returns how long the patrol may wait for
// this queue alone, and whether its time is up.
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
	need := q.need() // only now: it looks at the requests
	if l.share >= need {
		return 0, true
	}
	return min(need-l.share, never/among) * among, false
}

// need is what slowestPeer takes, with the wire for itself, for what is out up to the
// request that must complete next.
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

// signs counts what is known of the peer: receives, and sends that it answered; it
// wraps.
func (q *Queue) signs() uint32 { return q.heard + q.order.head - q.local }

// Heard notes a message of the queue's peer that was taken by a SharedRecv. Holder
// only.
func (q *Queue) Heard() { q.heard++ }

// reportTimeout tells the owner that the time is up, if nothing came after all since
// look: what had come was polled meanwhile.
func (q *Queue) reportTimeout(now time.Duration) {
	l := q.peerLimit
	if l == nil || l.timedOut || q.order.len() == 0 || q.order.head != l.head {
		return
	}
	need := q.need()
	if l.Bound == 0 || l.silent < l.Bound || l.share < need { // another's end has set another limit
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
		Out: q.order.len(), Oldest: q.tab.slots[oldest].kind,
	})
}

// keepAlive looks twice in KeepAlive whether anything was heard of the peer, and asks
// if not: so between half of it and all of it after the last sign. The answer is a
// sign, too: who is idle asks once in KeepAlive. It returns how long until the
// next look, and whether a request went out.
func (q *Queue) keepAlive(now time.Duration) (wait time.Duration, asked bool) {
	l := q.peerLimit
	if l.KeepAlive == 0 {
		return never, false
	}
	if now >= l.askAt {
		quiet := l.waited && q.signs() == l.askSeen
		half := max(l.KeepAlive/2, 1)
		// At the same moments for all queues: one wake-up does for them. The first time is
		// when the limit is set, which is none of those.
		l.waited = l.askAt != 0
		l.askAt, l.askSeen = (now/half+1)*half, q.signs()
		if quiet && q.order.len() == 0 && q.failed.get() == nil {
			// It fails when control requests are out: then somebody asks already.
			asked = q.PostControl(&Send{Opcode: verbs.WRRDMAWrite, Sink: keepAliveSink{q}}, Payload{}) == nil
		}
		if asked {
			q.r.stats.KeepAlives++
		}
	}
	return l.askAt - now, asked
}

// keepAliveSink takes the completion of a keep-alive: that it came is all there is to
// know. If it failed the queue's owner is told already; of one that the device did not
// even take nobody else tells, and none that follows may ever be out.
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
