package reactor

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// PeerLimit limits how long a queue waits for its peer. Only a timer checks the limits (the watchdog,
// loop_watchdog.go), so they cost an operation nothing.
type PeerLimit struct {
	// Bound is how long sends of the queue may be outstanding while none of them completes; 0: no
	// limit. Sends of many bytes may take longer. Let bytes be the size of the outstanding sends from
	// the oldest send to the first signaled send, and let n be the number of the reactor's queues
	// with outstanding sends, which share the wire. The limit is the larger of Bound and
	// n*bytes/slowestPeer.
	Bound time.Duration
	// KeepAlive is the longest silence before a zero-byte WRITE probes the peer; 0: no probes. The
	// WRITE needs no key, takes no receive, and is invisible to the peer's program (IBTA C9-88).
	// The peer's queue pair must allow remote WRITEs. A queue pair that is connected through the
	// connection manager allows them. The reactor sends a probe only while no send is outstanding.
	// Bound applies to the probe as to any send. The queue needs a ControlDepth of at least 1 for
	// probes.
	//
	// The silence ends when a receive or a send completes. (BIND_MW and LOCAL_INV do not count,
	// because they do not involve the peer.) If a SharedRecv takes the peer's messages, the owner
	// must report each message with NotePeerReceive.
	KeepAlive time.Duration
	// OnTimeout is called one time, with the turn held, when Bound has passed. The owner must then
	// move the queue pair to ERR, which flushes the outstanding requests.
	OnTimeout func(PeerTimeout)
}

// PeerTimeout describes a queue whose peer did not answer.
type PeerTimeout struct {
	Bound       time.Duration // the time allowed: PeerLimit.Bound, or more for sends that move many bytes
	Since       time.Time     // when the watchdog last saw progress, on the reactor's clock
	Outstanding int           // outstanding sends
	Oldest      Kind          // the kind of the oldest outstanding send
}

// slowestPeer is a throughput in bytes a second. If n queues have outstanding sends, a peer that
// reaches slowestPeer/n counts as healthy. slowestPeer is 8 MiB/s (67 Mbit/s). Soft-RoCE on an
// emulated machine reaches 15 MiB/s, but 4 beside three busy processes on two processors. With a
// Bound of 5 s and n queues with outstanding sends, a queue gets more time than Bound only if its
// outstanding sends, up to the first signaled send, move more than 40/n MiB.
const slowestPeer = 8 << 20

// peerLimit holds a queue's PeerLimit, and the state that the watchdog recorded at its last tick. Only
// the holder uses a peerLimit. It fits into one line of a processor's cache, because the caches do not keep it
// between two checks of an idle queue.
type peerLimit struct {
	PeerLimit
	busy     bool // sends were outstanding
	timedOut bool // OnTimeout was called
	// waited reports whether quiet was called. The first call asks for no probe, because it may
	// come less than KeepAlive/2 after SetPeerLimit.
	waited bool
	ended  uint32        // the value of Queue.order.ended, which wraps
	silent time.Duration // how long sends have been outstanding while none of them ended
	// share is the part of the duration silent in which the device served this queue, as an estimate: a
	// device is assumed to serve queue pairs one after the other. So if n queues had outstanding sends,
	// share grows by 1/n of the time between two ticks.
	share time.Duration

	probeAt    time.Duration // when quiet is called next, on the timers' clock
	probeSigns uint32        // peerSigns() at the last call of quiet, or at SetPeerLimit
}

// SetPeerLimit sets the limit that the watchdog checks from now on. A zero PeerLimit removes the
// limit, and so does Release. Call SetPeerLimit after Admit. Only the holder may call SetPeerLimit.
//
// Bound is measured from the moment at which a send is posted while none is outstanding, and again
// from each completion of a send. OnTimeout is called when Bound has passed (later for many bytes,
// see PeerLimit.Bound). The call is late by at most an eighth of the smallest Bound on the reactor,
// plus any time in which the process did not run.
//
// Only queues of type RC can have a limit: sends on other queues do not wait for the peer.
//
// Errors: ErrConfig.
func (q *Queue) SetPeerLimit(l PeerLimit) error {
	switch {
	case q.cfg.Type != verbs.QPTRC:
		return fmt.Errorf("%w: a PeerLimit for a queue of type %v, want type RC", ErrConfig, q.cfg.Type)
	case l.Bound < 0 || l.KeepAlive < 0:
		return fmt.Errorf("%w: PeerLimit.Bound is %v and KeepAlive %v, want both at least 0", ErrConfig, l.Bound, l.KeepAlive)
	case l.Bound > 0 && l.OnTimeout == nil:
		return fmt.Errorf("%w: a PeerLimit with a Bound and no OnTimeout", ErrConfig)
	case l.KeepAlive > 0 && q.ctrlFree == nil:
		return fmt.Errorf("%w: KeepAlive needs a ControlDepth of at least 1", ErrConfig)
	case !q.released() && q.r.lookup(q.id) != q: // no tick would check the queue, and Discard would not remove its limit
		return fmt.Errorf("%w: SetPeerLimit was called before Admit", ErrConfig)
	}
	q.clearPeerLimit()
	if q.released() || l.Bound == 0 && l.KeepAlive == 0 {
		return nil
	}
	now := q.r.clock()
	q.peerLimit = &peerLimit{PeerLimit: l, ended: q.order.ended, probeSigns: q.peerSigns()}
	p := &q.r.watchdog
	p.limited++
	p.paceFor(l.Bound)
	if l.KeepAlive > 0 {
		p.probes.add(q, p.probeTime(now, q))
	}
	if !p.covers(q.peerLimit, now) {
		p.wake(q.r)
	}
	return nil
}

func (q *Queue) clearPeerLimit() {
	if l := q.peerLimit; l != nil {
		if l.KeepAlive > 0 {
			q.r.watchdog.probes.remove(q)
		}
		q.peerLimit = nil
		q.r.watchdog.limited--
	}
}

// checkPeer checks the queue's Bound at a tick of the watchdog. The argument step is the time since
// the previous tick. The argument crowd is the number of queues that had outstanding sends in this
// time. checkPeer returns the time until the queue must be checked again, and whether the queue has
// exceeded its limit.
func (q *Queue) checkPeer(step time.Duration, crowd int) (wait time.Duration, up bool) {
	l, among := q.peerLimit, time.Duration(max(crowd, 1))
	busy := q.order.n > 0
	if !busy || !l.busy || l.ended != q.order.ended {
		l.busy, l.ended, l.silent, l.share = busy, q.order.ended, 0, 0
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
	need := q.need() // called only after Bound has passed, because it visits the outstanding sends
	if l.share >= need {
		return 0, true
	}
	return min(need-l.share, never/among) * among, false
}

// need returns bytes/slowestPeer, where bytes is the size of the outstanding sends from the
// oldest send to the first signaled send. If these sends succeed, the next completion of the queue is
// the completion of the first signaled send.
func (q *Queue) need() time.Duration {
	var bytes uint64
	for i := range q.order.all() {
		bytes += uint64(q.tab.bytes(i))
		if q.tab.send(i).Flags&verbs.SendSignaled != 0 {
			break
		}
	}
	return time.Duration(float64(bytes) / slowestPeer * float64(time.Second))
}

// peerSigns counts the peer's signs of life: completed receives, and ended sends except BIND_MW and
// LOCAL_INV. The count wraps.
func (q *Queue) peerSigns() uint32 { return q.peerReceives + q.order.ended - q.localSends }

// NotePeerReceive records that a SharedRecv took a message of the queue's peer. Only the holder may
// call NotePeerReceive.
func (q *Queue) NotePeerReceive() { q.peerReceives++ }

// reportTimeout calls OnTimeout if the queue still exceeds its limit. After the call of checkPeer, the
// caller has polled the completion queues, so sends may have completed.
func (q *Queue) reportTimeout(now time.Duration) {
	l := q.peerLimit
	if l == nil || l.timedOut || q.order.n == 0 || q.order.ended != l.ended {
		return
	}
	need := q.need()
	if l.Bound == 0 || l.silent < l.Bound || l.share < need {
		return // SetPeerLimit was called after checkPeer, for example by OnTimeout of another queue
	}
	bound := l.Bound
	if need > 0 { // how long the silence had lasted when l.share reached need, if both have grown evenly
		bound = max(bound, time.Duration(float64(need)*float64(l.silent)/float64(l.share)))
	}
	l.timedOut = true
	q.r.stats.PeerTimeouts++
	l.OnTimeout(PeerTimeout{
		Bound: bound, Since: q.r.timers.base.Add(now - l.silent),
		Outstanding: q.order.n, Oldest: q.tab.slot(q.order.first).kind,
	})
}

// quiet reports whether a probe is wanted: the peer has given no sign of life since the last call, and no send is
// outstanding. It is called every KeepAlive/2. So a probe is sent between KeepAlive/2 and KeepAlive after the last
// sign. The answer to the probe is also a sign, so the next call returns false, and an idle queue sends one probe in
// each KeepAlive.
func (q *Queue) quiet() bool {
	l, signs := q.peerLimit, q.peerSigns()
	quiet := l.waited && signs == l.probeSigns
	l.waited, l.probeSigns = true, signs
	return quiet && q.order.n == 0 && q.failed.get() == nil
}

// sendProbe sends a probe, and reports whether it did. It calls no function of a user, so all limits stay.
func (q *Queue) sendProbe() bool {
	// PostControl fails if all control slots are taken. No send is outstanding, so the control
	// requests in these slots will be posted soon. They then serve as the probe.
	if q.PostControl(&Send{Opcode: verbs.WRRDMAWrite, Sink: keepAliveSink{q}}, Payload{}) != nil {
		return false
	}
	q.r.stats.KeepAlives++
	return true
}

// keepAliveSink receives the outcome of a probe. If the probe succeeded, there is nothing to do. If
// the probe completed with an error, the queue has failed already. If the device refused the probe,
// the sink fails the queue, because an idle queue may never submit another request, and then the
// owner would not learn of the failure.
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
