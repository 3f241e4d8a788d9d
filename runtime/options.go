package runtime

import (
	"bytes"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Options describes connections. The zero value works.
type Options struct {
	// Raw leaves receives to the caller; see the package documentation, and
	// Pending for receives that must be posted before connecting. The peer
	// need not be a runtime then: any librdmacm program will do.
	Raw bool
	// Bare sends PrivateData of a raw connection unchanged, without the hello that runtimes put in
	// front of it, and does not expect a hello in the peer's private data. It is for peers that
	// read private data and are not runtimes.
	Bare bool
	// SendDepth is how many operations may be outstanding; default DefaultSendDepth.
	SendDepth int
	// RecvCredits is how many receives are kept posted for the peer
	// (managed), or may be posted (raw); default DefaultRecvCredits.
	RecvCredits int
	// MessageSize is the largest message received, in bytes; default DefaultMessageSize,
	// or less if the port carries less. The peer learns it. MessageSize + 16, for
	// the header, must not exceed the port's largest message.
	MessageSize int
	// MaxSGE is how many pieces a gathered or scattered operation may have; default DefaultMaxSGE.
	MaxSGE int
	// Inline is how many bytes a SEND, or a WRITE of one piece, may carry inline: they are copied
	// when the request is posted, and the device need not fetch them. A message's header counts.
	// Default DefaultInline; -1: none. The processor reads inline data, so memory of another
	// device, on-demand memory and zero-based memory are never sent inline.
	Inline int
	// Shared is the shared receive queue of a raw connection, used in place of RecvCredits
	// receives of its own. It must belong to the same runtime and be open. Default nil.
	Shared *SharedRecv
	// PeerTimeout bounds every operation: if a connection has outstanding operations and none
	// completes within the bound, the connection fails with ErrPeerTimeout, and its operations
	// end. It applies to this end only, whatever the peer's options are. The bound is PeerTimeout,
	// or 4 × ACK timeout × (retries + 1) of the queue pair if that is longer. A large transfer is
	// allowed n × bytes / (8 MiB/s) if that is longer still, where n is the number of connections
	// of its reactor with outstanding operations: they share the wire. Other load on the wire,
	// such as the peer's, is unknown: where it leaves a reactor less than 8 MiB/s, large transfers
	// need a longer PeerTimeout. A peer of a raw connection that posts no receive counts as not
	// answering. Default DefaultPeerTimeout; negative: only the device's own limits apply.
	PeerTimeout time.Duration
	// KeepAlive is the longest silence of the peer before a zero-byte WRITE probes it, so that a
	// connection that only waits for messages detects a lost peer too. The probe costs an idle
	// connection one packet each way per KeepAlive; the peer's program does not see it. A lost peer
	// is detected within KeepAlive plus the bound of PeerTimeout. Default PeerTimeout; negative:
	// never.
	KeepAlive time.Duration
	// Recorder is how many completed operations the flight recorder keeps, with the
	// times of their start, posting and completion, and their outcome: see Conn.Recorded
	// and Runtime.Stuck. Default 0: no recorder and no cost; negative: none, whatever
	// the runtime's options are. It costs three clock readings per operation, and some
	// 100 bytes of memory for each operation that is kept or may be outstanding.
	Recorder int
	// Backlog is how many peers of a listener may wait to be accepted: requests,
	// handshakes and established connections together; see Listener. Each may hold a
	// connection's memory, by default half a MiB of receives: 66 MiB for 128. At most half
	// of them may be unfinished handshakes, and at most an eighth unfinished handshakes
	// from one address, but each of the two limits is at least 1. Only listeners use
	// Backlog. Default DefaultBacklog.
	Backlog int
	// PrivateData is sent to the peer with the request or the acceptance: at
	// most MaxDialData or MaxAcceptData bytes; with Bare,
	// verbs.MaxPrivateConnect or verbs.MaxPrivateAccept. It is copied.
	PrivateData []byte

	// kind is the type of the queue pair: RC by default (PlainOptions.Type).
	kind verbs.QPType
}

func (o Options) validate() (Options, error) {
	o.SendDepth = orDefault(o.SendDepth, DefaultSendDepth)
	o.RecvCredits = orDefault(o.RecvCredits, DefaultRecvCredits)
	o.MessageSize = orDefault(o.MessageSize, DefaultMessageSize)
	o.MaxSGE = orDefault(o.MaxSGE, DefaultMaxSGE)
	o.PeerTimeout = orDefault(o.PeerTimeout, DefaultPeerTimeout)
	o.Backlog = orDefault(o.Backlog, DefaultBacklog)
	if o.Inline = orDefault(o.Inline, DefaultInline); o.Inline < 0 {
		o.Inline = 0
	}
	o.Recorder = max(o.Recorder, 0)
	switch {
	case o.SendDepth < 1 || o.SendDepth > maxSends:
		return o, fmt.Errorf("%w: Options.SendDepth is %d, want 1 to %d", ErrConfig, o.SendDepth, maxSends)
	case o.RecvCredits < 1 || o.RecvCredits > maxCredits:
		return o, fmt.Errorf("%w: Options.RecvCredits is %d, want 1 to %d", ErrConfig, o.RecvCredits, maxCredits)
	case o.MessageSize < minMessageSize || o.MessageSize > 1<<30:
		return o, fmt.Errorf("%w: Options.MessageSize is %d, want %d to %d", ErrConfig, o.MessageSize, minMessageSize, 1<<30)
	case o.MaxSGE < 1 || o.MaxSGE > maxPieces:
		return o, fmt.Errorf("%w: Options.MaxSGE is %d, want 1 to %d", ErrConfig, o.MaxSGE, maxPieces)
	case o.PeerTimeout > 0 && o.PeerTimeout < minPeerTimeout || o.KeepAlive > 0 && o.KeepAlive < minPeerTimeout:
		return o, fmt.Errorf("%w: Options.PeerTimeout is %v and KeepAlive %v, want at least %v, or less than 0 for none", ErrConfig, o.PeerTimeout, o.KeepAlive, minPeerTimeout)
	case o.Backlog < 1 || o.Backlog > maxBacklog:
		return o, fmt.Errorf("%w: Options.Backlog is %d, want 1 to %d", ErrConfig, o.Backlog, maxBacklog)
	case o.Recorder > maxRecorder:
		return o, fmt.Errorf("%w: Options.Recorder is %d, want at most %d", ErrConfig, o.Recorder, maxRecorder)
	case (o.Shared != nil || o.Bare) && !o.Raw:
		return o, fmt.Errorf("%w: Options.Shared and Bare are for raw connections", ErrConfig)
	case o.Inline > maxInline:
		return o, fmt.Errorf("%w: Options.Inline is %d, want at most %d", ErrConfig, o.Inline, maxInline)
	}
	return o, nil
}

// fits checks options against the device's port.
func (rt *Runtime) fits(o Options) error {
	if largest := rt.shards[0].r.MaxMessage(); !o.Raw && o.MessageSize > largest-frameSize {
		return fmt.Errorf("%w: Options.MessageSize is %d, the port of %s carries %d with a header of %d",
			ErrConfig, o.MessageSize, rt.dev.Device().Name, largest, frameSize)
	}
	return nil
}

// inherit takes unset options from the runtime's. Do not apply it to its
// own result, where Inline 0 means never.
func (rt *Runtime) inherit(o Options) (Options, error) {
	d := rt.cfg.Conn
	o.Raw, o.Bare = o.Raw || d.Raw, o.Bare || d.Bare
	o.SendDepth = orDefault(o.SendDepth, d.SendDepth)
	o.RecvCredits = orDefault(o.RecvCredits, d.RecvCredits)
	o.MessageSize = orDefault(o.MessageSize, d.MessageSize)
	o.MaxSGE = orDefault(o.MaxSGE, d.MaxSGE)
	o.PeerTimeout = orDefault(o.PeerTimeout, d.PeerTimeout)
	o.KeepAlive = orDefault(o.KeepAlive, d.KeepAlive)
	o.Recorder = orDefault(o.Recorder, d.Recorder)
	o.Backlog = orDefault(o.Backlog, d.Backlog)
	if o.Inline == 0 {
		if o.Inline = d.Inline; o.Inline == 0 {
			o.Inline = -1
		}
	}
	if o.Shared == nil {
		o.Shared = d.Shared
	}
	if o.PrivateData == nil {
		o.PrivateData = d.PrivateData
	}
	o.PrivateData = bytes.Clone(o.PrivateData)
	if err := o.Shared.usable(rt); err != nil {
		return o, err
	}
	return o.validate()
}
