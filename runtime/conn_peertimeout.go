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

// A connection detects a peer that does not answer in three ways:
//
//	the device gives up   its retries are used up: a failed completion calls Conn.fail
//	the bound passes      no send completes within the bound: Conn.onPeerTimeout calls Conn.fail
//	an idle peer is lost  after KeepAlive of silence a zero-byte WRITE probes the peer; the
//	                      bound applies to this WRITE as to other sends
//
// The device's retries alone are not enough: RNR retries are unlimited, and a completion may
// get lost. Conn.fail moves the queue pair to ERR, which flushes all requests. Requests that
// are not flushed within flushBound end when the queue pair is destroyed (conn_teardown.go).

// ErrPeerTimeout is matched by the cause of a connection whose peer did not answer within the
// bound. That cause is a *PeerTimeoutError. ErrPeerTimeout matches os.ErrDeadlineExceeded.
var ErrPeerTimeout = sentinel.Reconnect("runtime: the peer did not answer", os.ErrDeadlineExceeded)

// PeerTimeoutError describes a peer that did not answer within the bound. Conn.Err returns it,
// and the errors of the operations that ended with the connection wrap it.
type PeerTimeoutError struct {
	Peer netip.AddrPort
	// Bound is the time allowed for an answer: Options.PeerTimeout, or more if the
	// device's retries or the outstanding bytes need more.
	Bound time.Duration
	// Since is the start of the time without an answer.
	Since time.Time
	// Outstanding is the number of outstanding operations, and Oldest the kind of the oldest
	// one. If Outstanding is 1 and Oldest a WRITE, that may be a keep-alive probe.
	Outstanding int
	Oldest      reactor.Kind
}

// Error describes the timeout with all fields.
func (e *PeerTimeoutError) Error() string {
	return fmt.Sprintf("%v: %v, nothing of it since %s, longer than %v; operations under way %d, the oldest a %v",
		ErrPeerTimeout, e.Peer, e.Since.Format(time.RFC3339Nano), e.Bound, e.Outstanding, e.Oldest)
}

// Unwrap returns ErrPeerTimeout.
func (e *PeerTimeoutError) Unwrap() error { return ErrPeerTimeout }

// Timeout returns true. Timeout and Temporary implement net.Error.
func (e *PeerTimeoutError) Timeout() bool { return true }

// Temporary returns false, because the connection has ended.
func (e *PeerTimeoutError) Temporary() bool { return false }

// deviceTimeouts is the largest ratio of a device's actual ACK timeout to the encoded value
// (IBTA 9.7.6.1.3).
const deviceTimeouts = 4

// boundOf returns the bound of operations on a queue pair with these attributes: the larger
// of the configured time and the longest time the device may take for its retries. Without a
// configured time it returns 0, which means no bound. With timeout code 0 the device has no
// timeout, and the configured time is the bound.
func boundOf(timeout, retries uint8, configured time.Duration) time.Duration {
	if configured <= 0 {
		return 0
	}
	return max(configured, deviceTimeouts*verbs.AckTimeout(timeout)*time.Duration(retries+1))
}

// ACK timeout codes of a connection.
const (
	// deviceDelay is the usual difference between the queue pair's code and the configured
	// one. The device raises the code to verbs.DeviceAttr.AckDelay (Soft-RoCE 15, ConnectX 16).
	deviceDelay = 2
	// minAckTimeout is 33 ms. A burst on a busy network, or a process that is briefly
	// not scheduled, can delay acknowledgments for almost that time.
	minAckTimeout = 13
	// maxAckTimeout is 1.1 s, for many years the kernel's default (CMA_IBOE_PACKET_LIFETIME).
	maxAckTimeout = 18
)

// ackTimeoutFor returns the ACK timeout code with which the device gives up shortly before
// the configured time ends. It returns 0 if no time is configured: the provider then chooses.
// The kernel chooses one second, or the value that the peer requests. With one second the
// device may take more than half a minute to give up.
func ackTimeoutFor(configured time.Duration) uint8 {
	if configured <= 0 {
		return 0
	}
	code := uint8(minAckTimeout)
	for code < maxAckTimeout && boundOf(code+deviceDelay+1, retryCount, 1) <= configured {
		code++
	}
	return code
}

// keepAlive returns the silence after which the peer is probed, or 0 for never.
func (o *Options) keepAlive() time.Duration {
	switch {
	case o.KeepAlive < 0 || !o.answers():
		return 0
	case o.KeepAlive == 0:
		return max(o.PeerTimeout, 0)
	}
	return o.KeepAlive
}

// answers reports whether the peer acknowledges messages, as only type RC does.
func (o *Options) answers() bool { return o.kind == 0 || o.kind == verbs.QPTRC }

// watchPeer starts the reactor's watchdog for the connection. It is called at ESTABLISHED,
// until which ConnectTimeout is the bound, and reads the effective ACK timeout from the queue
// pair. Holder only.
func (c *Conn) watchPeer() error {
	if !c.opts.answers() {
		return nil
	}
	l := reactor.PeerLimit{KeepAlive: c.opts.keepAlive(), OnTimeout: c.onPeerTimeout}
	if c.opts.PeerTimeout > 0 {
		attr, err := c.q.QP().Query()
		if err != nil {
			return err
		}
		l.Bound = boundOf(attr.Timeout, attr.RetryCnt, c.opts.PeerTimeout)
	}
	return c.q.SetPeerLimit(l)
}

// onPeerTimeout fails the connection because its peer did not answer. Holder only.
func (c *Conn) onPeerTimeout(l reactor.PeerTimeout) {
	c.fail(&PeerTimeoutError{Peer: c.remote, Bound: l.Bound, Since: l.Since, Outstanding: l.Outstanding, Oldest: l.Oldest})
}
