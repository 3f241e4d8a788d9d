package rpma

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/runtime"
)

// The defaults of a ConnConfig and of an SRQConfig.
const (
	DefaultTimeout   = time.Second // RPMA_DEFAULT_TIMEOUT_MS
	DefaultQueueSize = 10          // of the CQ, the SQ and the RQ
	DefaultSRQSize   = 100         // as librpma's manual says; its code (src/srq_cfg.c) has 20
)

// ConnConfig configures connections. The zero value has librpma's defaults. A ConnConfig is read when it
// is used, and may be changed afterwards.
//
// Implements: rpma_conn_cfg_new.
type ConnConfig struct {
	// Timeout bounds the resolution of the peer's address and of the route. Default DefaultTimeout.
	//
	// Implements: rpma_conn_cfg_set_timeout, rpma_conn_cfg_get_timeout.
	Timeout time.Duration
	// CQSize is how many completions the main CQ must hold. Default DefaultQueueSize. The CQ holds at least
	// as many as the send queue and, if it has no receive CQ, the receive queue can produce. With librpma
	// the default CQ of 10 overruns when more of the 20 operations of the default queues complete.
	// More than a queue of the device can hold (DeviceAttr.MaxCQE) is refused with EINVAL, for all CQs.
	//
	// Implements: rpma_conn_cfg_set_cq_size, rpma_conn_cfg_get_cq_size.
	CQSize int
	// RCQSize is how many completions the receive CQ must hold; it is made as large as the receive queue.
	// Default 0: there is no receive CQ, and receives complete to the main CQ. If the SRQ has a receive CQ
	// of its own, RCQSize does not apply.
	//
	// Implements: rpma_conn_cfg_set_rcq_size, rpma_conn_cfg_get_rcq_size.
	RCQSize int
	// SQSize is how many operations other than receives may be started and not taken from the CQ.
	// Default DefaultQueueSize.
	//
	// Implements: rpma_conn_cfg_set_sq_size, rpma_conn_cfg_get_sq_size.
	SQSize int
	// RQSize is that for receives. Default DefaultQueueSize. It does not apply with an SRQ.
	//
	// Implements: rpma_conn_cfg_set_rq_size, rpma_conn_cfg_get_rq_size.
	RQSize int
	// SharedChannel has the main and the receive CQ share a completion channel: Conn.Wait waits for both.
	// It cannot be used with an SRQ that has a receive CQ of its own.
	//
	// Implements: rpma_conn_cfg_set_compl_channel, rpma_conn_cfg_get_compl_channel.
	SharedChannel bool
	// SRQ is the shared receive queue of the connection. Default nil: it has a receive queue of its own.
	//
	// Implements: rpma_conn_cfg_set_srq, rpma_conn_cfg_get_srq.
	SRQ *SRQ
}

// validate returns c with its defaults; a nil c is the zero value.
func (c *ConnConfig) validate(op string) (ConnConfig, error) {
	var v ConnConfig
	if c != nil {
		v = *c
	}
	if v.Timeout == 0 {
		v.Timeout = DefaultTimeout
	}
	if v.RCQSize < 0 || v.Timeout < 0 {
		return v, invalid(op, "ConnConfig.RCQSize is %d and Timeout %v, want at least 0", v.RCQSize, v.Timeout)
	}
	for name, n := range map[string]*int{"CQSize": &v.CQSize, "SQSize": &v.SQSize, "RQSize": &v.RQSize} {
		if *n == 0 {
			*n = DefaultQueueSize
		}
		if *n < 0 {
			return v, invalid(op, "ConnConfig.%s is %d, want at least 1", name, *n)
		}
	}
	if v.SRQ != nil {
		if v.SharedChannel && v.SRQ.rcq != nil {
			return v, invalid(op, "a shared completion channel with an SRQ that has a receive CQ of its own")
		}
		v.RQSize = int(v.SRQ.places.most)
	}
	return v, nil
}

// maxInline is what an atomic write needs inline, in bytes.
const maxInline = 8

// options returns the runtime's options for a connection. They are those of librpma (src/conn_req.c,
// rpma_conn_req_connect): unlimited RNR retries, the most retries, the largest depths, no header in
// private data. No peer is given up that posts no receive.
func (c *ConnConfig) options() runtime.Options {
	o := runtime.Options{
		Raw: true, Bare: true, SendDepth: c.SQSize, RecvCredits: c.RQSize, MaxSGE: 1, Inline: maxInline,
		PeerTimeout: -1, KeepAlive: -1, RetryCount: runtime.DefaultRetryCount, ReadDepth: largestDepth,
	}
	if c.SRQ != nil {
		o.Shared, o.RecvCredits = c.SRQ.q, 1
	}
	return o
}

// largestDepth stands for the depths that the device and the peer support (RDMA_MAX_RESP_RES).
const largestDepth = 0xff

// SRQConfig configures shared receive queues. The zero value has librpma's defaults.
//
// Implements: rpma_srq_cfg_new.
type SRQConfig struct {
	// RQSize is how many receives may be posted and not taken from a CQ. Default DefaultSRQSize.
	//
	// Implements: rpma_srq_cfg_set_rq_size, rpma_srq_cfg_get_rq_size.
	RQSize int
	// RCQSize is how many completions the receive CQ of the SRQ must hold; it is made as large as RQSize.
	// Default DefaultSRQSize; -1: the SRQ has no receive CQ, and a receive completes to the CQ of the
	// connection that takes it.
	//
	// Implements: rpma_srq_cfg_set_rcq_size, rpma_srq_cfg_get_rcq_size.
	RCQSize int
}

func (c *SRQConfig) validate(op string) (SRQConfig, error) {
	var v SRQConfig
	if c != nil {
		v = *c
	}
	if v.RQSize == 0 {
		v.RQSize = DefaultSRQSize
	}
	if v.RCQSize == 0 {
		v.RCQSize = DefaultSRQSize
	}
	if v.RQSize < 1 || v.RCQSize < -1 {
		return v, fail(op, ErrInvalid, fmt.Errorf("SRQConfig has RQSize %d and RCQSize %d, want at least 1 and -1", v.RQSize, v.RCQSize))
	}
	return v, nil
}
