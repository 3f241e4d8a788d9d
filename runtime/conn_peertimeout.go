package runtime

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// A connection has three ways to detect that its peer does not answer. The bound is
// Options.PeerTimeout, or a longer time that boundOf returns.
//
//	the device gives up   all its retries stay unanswered; the failed completion calls Conn.fail
//	the bound passes      no send completes within the bound; Conn.onPeerTimeout calls Conn.fail
//	a probe gets no       when the peer was silent for Options.KeepAlive, a zero-byte WRITE
//	answer                probes it; the bound applies to this WRITE as to other sends
//
// The device's retries alone are not enough: RNR retries are unlimited, and the device may lose a
// completion. Conn.fail moves the queue pair to ERR, which flushes all requests. Requests that are
// not flushed within flushBound end when the queue pair is destroyed (conn_teardown.go).

// ErrPeerTimeout means that the peer did not answer within the bound of Options.PeerTimeout. The
// connection then fails with a *PeerTimeoutError, which matches ErrPeerTimeout. ErrPeerTimeout
// matches os.ErrDeadlineExceeded.
var ErrPeerTimeout = sentinel.Reconnect("runtime: the peer did not answer", os.ErrDeadlineExceeded)

// PeerTimeoutError describes a peer that did not answer within the bound. Conn.Err returns it,
// and the errors of the operations that ended with the connection wrap it.
type PeerTimeoutError struct {
	Peer netip.AddrPort
	// Bound is the time allowed for an answer. It is Options.PeerTimeout, or a longer time if the
	// device's retries or the outstanding bytes need more time.
	Bound time.Duration
	// Since is when the time without an answer began.
	Since time.Time
	// Outstanding is the number of outstanding operations, without receives. Oldest is the kind of
	// the oldest of these operations. If Outstanding is 1 and Oldest is a WRITE, that WRITE may be
	// a keep-alive probe.
	Outstanding int
	Oldest      reactor.Kind
}

// Error describes the timeout with all fields.
func (e *PeerTimeoutError) Error() string {
	return fmt.Sprintf("%v: %v, silent since %s, longer than %v; operations outstanding: %d, the oldest a %v",
		ErrPeerTimeout, e.Peer, e.Since.Format(time.RFC3339Nano), e.Bound, e.Outstanding, e.Oldest)
}

// Unwrap returns ErrPeerTimeout.
func (e *PeerTimeoutError) Unwrap() error { return ErrPeerTimeout }

// Timeout returns true. Timeout and Temporary implement net.Error.
func (e *PeerTimeoutError) Timeout() bool { return true }

// Temporary returns false, because the connection has ended.
func (e *PeerTimeoutError) Temporary() bool { return false }

// deviceTimeouts is the largest ratio between the time that a device waits for an acknowledgment
// and the time that the ACK timeout code stands for (IBTA 9.7.6.1.3).
const deviceTimeouts = 4

// boundOf returns the bound of operations on a queue pair: the larger of the configured time and
// the longest time that the device may take for its retries. The argument timeout is an ACK timeout
// code, and retries is the retry count. With code 0 the device waits without limit, and the bound
// is the configured time. If no time is configured, boundOf returns 0, which means that there is no
// bound.
func boundOf(timeout, retries uint8, configured time.Duration) time.Duration {
	if configured <= 0 {
		return 0
	}
	return max(configured, deviceTimeouts*verbs.AckTimeout(timeout)*time.Duration(retries+1))
}

// ACK timeout codes of a connection.
const (
	// minAckTimeout is the code for 33 ms. A smaller code would cause needless retries: a burst on a
	// busy network, or a process that is briefly not scheduled, can delay acknowledgments for almost
	// 33 ms.
	minAckTimeout = 13
	// maxAckTimeout is the code for 1.1 s, which was the kernel's default on RoCE for many years
	// (CMA_IBOE_PACKET_LIFETIME).
	maxAckTimeout = 18
)

// longestAckTimeout is the time that the largest ACK timeout code, 31, stands for.
var longestAckTimeout = verbs.AckTimeout(31)

// retries returns the retry count of the queue pair.
func (o *Options) retries() uint8 { return uint8(max(o.RetryCount, 0)) }

// ackTimeout returns the ACK timeout code for which the runtime asks. The queue pair gets a larger one
// if its device's own delay is larger (verbs.DeviceAttr.AckDelay).
func (o *Options) ackTimeout() uint8 {
	if o.AckTimeout == 0 {
		return ackTimeoutFor(o.PeerTimeout, o.retries())
	}
	code := uint8(1)
	for verbs.AckTimeout(code) < o.AckTimeout {
		code++
	}
	return code
}

// ackTimeoutFor returns the largest ACK timeout code, from minAckTimeout to maxAckTimeout, with
// which the device gives up within the configured time. If there is no such code, it returns
// minAckTimeout, and if no time is configured, maxAckTimeout: with 7 retries the device may then
// take 34 s to give up (boundOf).
func ackTimeoutFor(configured time.Duration, retries uint8) uint8 {
	code := uint8(maxAckTimeout)
	for configured > 0 && code > minAckTimeout && boundOf(code, retries, 1) > configured {
		code--
	}
	return code
}

// keepAlive returns how long the peer may be silent before the reactor sends a probe. With 0 the
// reactor sends no probes.
func (o *Options) keepAlive() time.Duration {
	switch {
	case o.KeepAlive < 0 || !o.answers():
		return 0
	case o.KeepAlive == 0:
		return max(o.PeerTimeout, 0)
	}
	return o.KeepAlive
}

// answers() reports whether the peer's device acknowledges messages. It does so only for queue
// pairs of type RC.
func (o *Options) answers() bool { return o.kind == 0 || o.kind == verbs.QPTRC }

// watchPeer makes the reactor's watchdog check the peer from now on. It is called when the
// connection is established. (Config.ConnectTimeout limits the time before that.) watchPeer
// computes the bound from the ACK timeout and the retry count that the queue pair has. Holder only.
func (c *Conn) watchPeer() error {
	if !c.opts.answers() {
		return nil
	}
	l := reactor.PeerLimit{KeepAlive: c.opts.keepAlive(), OnTimeout: c.onPeerTimeout}
	if c.opts.PeerTimeout > 0 {
		timeout, retries, err := retriesOf(c.q.QP())
		if err != nil {
			return err
		}
		l.Bound = boundOf(timeout, retries, c.opts.PeerTimeout)
	}
	return c.q.SetPeerLimit(l)
}

// retriesOf returns the ACK timeout code and the retry count of a queue pair.
func retriesOf(qp verbs.QP) (timeout, retries uint8, err error) {
	if p, ok := qp.(verbs.Patient); ok {
		timeout, retries = p.Patience()
		return timeout, retries, nil
	}
	attr, err := qp.Query()
	return attr.Timeout, attr.RetryCnt, err
}

// onPeerTimeout fails the connection because its peer did not answer. Holder only.
func (c *Conn) onPeerTimeout(l reactor.PeerTimeout) {
	c.fail(&PeerTimeoutError{Peer: c.remote, Bound: l.Bound, Since: l.Since, Outstanding: l.Outstanding, Oldest: l.Oldest})
}
