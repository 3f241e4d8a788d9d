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

// What a connection does about a peer that does not answer:
//
//	the device gives up   its retries are used up: a failed completion, Conn.fail
//	the bound passes      no send completes for the bound: Conn.late, Conn.fail
//	nothing is out        after KeepAlive without a sign of the peer it is asked, and the
//	                      question is a send as the others
//
// The device alone does not do: retries of a receiver that is not ready have no
// end, and a completion may get lost. Conn.fail moves the queue pair to ERR, so
// that everything is flushed; what is not flushed within flushBound ends with the
// queue pair (conn_teardown.go).

// ErrPeerTimeout is why a connection ended whose peer did not answer within the
// bound: a *PeerTimeoutError. It matches os.ErrDeadlineExceeded.
var ErrPeerTimeout = sentinel.Reconnect("runtime: the peer did not answer", os.ErrDeadlineExceeded)

// PeerTimeoutError says which peer did not answer, and for how long. It is the
// cause of a connection (Conn.Err), and of the operations that ended with it.
type PeerTimeoutError struct {
	Peer netip.AddrPort
	// Bound is what was allowed: Options.PeerTimeout, or what the device may take
	// for its retries, or the bytes for their way.
	Bound time.Duration
	// Since is from when on it was counted.
	Since time.Time
	// Out is how many operations were under way; Oldest is of what kind the oldest
	// was. A WRITE alone may be the question whether the peer is there.
	Out    int
	Oldest reactor.Kind
}

// Error says all of it.
func (e *PeerTimeoutError) Error() string {
	return fmt.Sprintf("%v: %v, nothing of it since %s, longer than %v; operations under way %d, the oldest a %v",
		ErrPeerTimeout, e.Peer, e.Since.Format(time.RFC3339Nano), e.Bound, e.Out, e.Oldest)
}

// Unwrap makes it an ErrPeerTimeout.
func (e *PeerTimeoutError) Unwrap() error { return ErrPeerTimeout }

// Timeout is true. It makes this a net.Error, as Temporary does.
func (e *PeerTimeoutError) Timeout() bool { return true }

// Temporary is false: the connection has ended.
func (e *PeerTimeoutError) Temporary() bool { return false }

// deviceTimeouts is how many times its timeout and its retries a device is given
// before it is not believed any more: the timeout of IBTA 9.7.6.1.3 may be up to
// four times what the code says.
const deviceTimeouts = 4

// boundOf is the bound of operations on a queue pair with these attributes: the
// larger of what the device may take before it gives up and what is configured;
// 0, for ever, if none is configured. Code 0 has the device try for ever: then the
// configured one holds.
func boundOf(timeout, retries uint8, configured time.Duration) time.Duration {
	if configured <= 0 {
		return 0
	}
	return max(configured, deviceTimeouts*verbs.AckTimeout(timeout)*time.Duration(retries+1))
}

// The ACK timeout of a connection; codes.
const (
	// deviceDelay is how much a device's own delay adds to what is set, as a rule
	// (verbs.DeviceAttr.AckDelay; Soft-RoCE has 15, ConnectX 16).
	deviceDelay = 2
	// minAckTimeout is 33 ms: less is a burst of a busy network, or a process that
	// is not scheduled for a moment.
	minAckTimeout = 13
	// maxAckTimeout is 1.1 s, what the kernel itself took for long (CMA_IBOE_PACKET_LIFETIME).
	maxAckTimeout = 18
)

// ackTimeoutFor is the code to set so that the device has given up before the
// configured time is over, and not long before: of itself the kernel takes a
// second, or what the peer asks for, with which a peer is not given up in half a
// minute. 0: set nothing.
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

// keepAlive is the option as it is meant: after how much silence the peer is
// asked; 0: never.
func (o *Options) keepAlive() time.Duration {
	switch {
	case o.KeepAlive < 0 || !o.answers():
		return 0
	case o.KeepAlive == 0:
		return max(o.PeerTimeout, 0)
	}
	return o.KeepAlive
}

// answers tells whether a peer acknowledges what it is sent.
func (o *Options) answers() bool { return o.kind == 0 || o.kind == verbs.QPTRC }

// watchPeer has the reactor count, from ESTABLISHED on: before that ConnectTimeout
// bounds everything. What the provider has made of the timeout stands in the queue
// pair. Holder only.
func (c *Conn) watchPeer() error {
	if !c.opts.answers() {
		return nil
	}
	l := reactor.PeerLimit{KeepAlive: c.opts.keepAlive(), OnTimeout: c.late}
	if c.opts.PeerTimeout > 0 {
		attr, err := c.q.QP().Query()
		if err != nil {
			return err
		}
		l.Bound = boundOf(attr.Timeout, attr.RetryCnt, c.opts.PeerTimeout)
	}
	return c.q.SetPeerLimit(l)
}

// late ends a connection whose peer did not answer. Holder only.
func (c *Conn) late(l reactor.PeerTimeout) {
	c.fail(&PeerTimeoutError{Peer: c.remote, Bound: l.Bound, Since: l.Since, Out: l.Out, Oldest: l.Oldest})
}
