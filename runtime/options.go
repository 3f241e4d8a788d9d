package runtime

import (
	"bytes"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Options describe connections. The zero value works.
type Options struct {
	// Raw leaves receives to the caller; see the package comment, and Pending for those that
	// must be there first. The peer need not be a runtime then: any program of librdmacm's will do.
	Raw bool
	// Bare has PrivateData of a raw connection go as it is, without the hello that
	// runtimes put in front of it, and the peer's come as it is: for peers that are
	// no runtime and read it.
	Bare bool
	// SendDepth is how many operations may be outstanding; default
	// DefaultSendDepth.
	SendDepth int
	// RecvCredits is how many receives are kept posted for the peer (managed),
	// or may be posted (raw); default DefaultRecvCredits.
	RecvCredits int
	// MessageSize is the largest message received, in bytes; default
	// DefaultMessageSize, or less where the port carries less. The peer is told.
	// With a header of 16 bytes it must fit the port's largest message.
	MessageSize int
	// MaxSGE is how many pieces a gathered or scattered operation may have;
	// default DefaultMaxSGE.
	MaxSGE int
	// Inline is up to how many bytes a SEND or WRITE carries in the request itself, copied
	// when it is posted, so that the device need not fetch them; with a message's
	// header, and of a WRITE of one piece. Default DefaultInline, -1: never. Memory of
	// another device, on demand or zero-based it always fetches; any other the
	// processor reads.
	Inline int
	// Shared is where a raw connection takes its receives from, instead of from
	// RecvCredits of its own: one of the same runtime, not closed; default nil.
	Shared *SharedRecv
	// PeerTimeout bounds every operation: when none of a connection has completed
	// for so long the connection fails with ErrPeerTimeout, and they end. It holds
	// for this end, whatever the peer's options are. Where a
	// queue pair's own timeout and retries take longer, 4 times what they take is the
	// bound, and a transfer of more than 8 MiB for each second of it has that
	// second for each 8 MiB, and n times that while n connections of its reactor have
	// operations under way, because they share the wire. Who else fills a wire, of the
	// peer's say, is not known: where that leaves a reactor less than 8 MiB a second,
	// large transfers need a longer PeerTimeout. A raw connection whose peer posts no
	// receive counts as not answered. Default DefaultPeerTimeout; negative: only the
	// device gives up.
	PeerTimeout time.Duration
	// KeepAlive is after how much silence of the peer it is asked whether it is
	// there, so that a connection that only waits for messages ends too: with a WRITE of no
	// bytes, which costs an idle connection one packet each way in that time and
	// which the peer's program does not see. A lost peer is noticed within KeepAlive and
	// the bound of PeerTimeout. Default PeerTimeout; negative: never.
	KeepAlive time.Duration
	// Recorder is of how many operations that ended the connection keeps what they were,
	// when each was started, posted and polled, and how it ended: see Conn.Recorded and
	// Runtime.Stuck. Default 0: of none, which costs nothing; negative: none, whatever
	// the runtime's options say. It costs three readings of the clock for an operation alone,
	// and some 100 bytes for each that is kept or can be out.
	Recorder int
	// Backlog is how many peers a listener has at most that nobody has accepted yet: their
	// requests, handshakes and established connections; see Listener. Of these up to Backlog
	// have what a connection has, by default half a MiB of receives, so that 128 may have 66
	// MiB. Half of it may be handshakes that are not finished, and an eighth those of one
	// address, each at least 1. It is for listeners alone. Default DefaultBacklog.
	Backlog int
	// PrivateData goes to the peer with the request or the acceptance: at most
	// MaxDialData or MaxAcceptData bytes; Bare, verbs.MaxPrivateConnect or
	// verbs.MaxPrivateAccept. It is copied.
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

// inherit fills what o leaves open from the runtime's options. Its result is
// not for inherit again: there, Inline 0 means never.
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
