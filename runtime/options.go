package runtime

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Options configures connections. The zero value works.
type Options struct {
	// Raw leaves the posting of receives to the program: see the package documentation. If receives
	// must be posted before the connection is established, see Pending. The peer of a raw
	// connection may be any librdmacm program. On iWARP the accepting end must not send before a message
	// of the dialing end has arrived (verbs.TransportIWARP): a managed connection sees to that, the program of a raw one
	// has to.
	Raw bool
	// Bare is for a raw connection whose peer does not use this package and reads the private data.
	// With Bare, the runtime sends PrivateData unchanged, and looks for no header in the peer's
	// private data. Without Bare, the runtime puts a header, the hello, before PrivateData.
	Bare bool
	// SendDepth is how many operations other than receives may be submitted and not completed.
	// Default DefaultSendDepth, or what the device has. If the device has less than SendDepth, MaxSGE or Inline
	// says, the connection fails, and the error says what it has.
	SendDepth int
	// RecvCredits is a number of receives. A managed connection keeps that many receives of its own
	// posted for the peer, which has as many credits from the beginning. Default for a managed
	// connection: it shares receives with the others of its reactor. It then begins with a receive for
	// one message; the peer gets more credits as it uses them, up to 512, and gives them back when the
	// connection is idle for one or two seconds. Without shared receive queues of the device the default
	// is DefaultRecvCredits. On a raw connection RecvCredits is how many receives the program may have
	// posted. Default DefaultRecvCredits.
	RecvCredits int
	// MessageSize is the size in bytes of a receive. The handshake reports MessageSize to the peer.
	// Default DefaultMessageSize, or less if the port carries less. On a managed connection each message has a header of 16 bytes, and MessageSize
	// plus 16 must not exceed the port's largest message.
	MessageSize int
	// MaxMessage is the size in bytes of the largest message that this end can receive, rounded up to a power
	// of two, and at most 1 GiB. A managed connection reads a message that is longer than MessageSize from the
	// peer's memory, into a buffer of its own, when the program receives. That needs memory windows of type 2
	// on both devices; without them, the limit is MessageSize. So it is if MaxMessage is not larger than
	// MessageSize, for example negative. Default DefaultMaxMessage.
	//
	// Such a connection needs windows; see Options.Windows. If MaxMessage is not larger than MessageSize, it does
	// not, and this end neither receives nor sends longer messages.
	MaxMessage int
	// Windows permits Conn.NewWindow, and has the queue pair made so that it can bind windows. A connection
	// that carries messages longer than MessageSize has windows in any case. Windows cost pinned memory on some
	// devices: with the defaults, libmlx5 makes a request 384 bytes long and not 192, and the send queue of a
	// connection 128 KiB and not 64. Default: no windows.
	Windows bool
	// RecvBudget limits the memory, in bytes, that the peer's messages longer than MessageSize take: those that
	// are being read, and those that the program has not released. Further ones stay in the peer's memory.
	// Default MaxMessage; a smaller value has no effect.
	RecvBudget int
	// MaxSGE is how many pieces of memory a gathered or scattered operation may have. Default
	// DefaultMaxSGE, or what the device has.
	MaxSGE int
	// Inline is how many bytes a SEND, or a WRITE of one piece of memory, may carry inline. The
	// header of a message counts as inline bytes. The processor copies inline bytes when the request
	// is posted, so the device need not fetch them. Memory of another device, on-demand memory and
	// zero-based memory are never sent inline. Default DefaultInline, or what the device has; -1: no bytes.
	Inline int
	// Shared is the shared receive queue of a raw connection. The connection then has no receives
	// of its own, and RecvCredits does not apply. The SharedRecv must be open and belong to the
	// same runtime. Default nil: the connection has its own receives.
	Shared *SharedRecv
	// PeerTimeout limits how long operations wait for the peer. If a connection has outstanding
	// operations and no operation completes within a bound, the connection fails with
	// ErrPeerTimeout, and its operations end. Each end of a connection applies its own PeerTimeout.
	// The bound is the largest of three times:
	//
	//   - PeerTimeout
	//   - 4 × ACK timeout × (retries + 1), with the attributes of the queue pair
	//   - n × bytes / (8 MiB/s), where bytes is the number of outstanding bytes up to the next
	//     completion, and n is the number of connections of the reactor with outstanding operations
	//
	// The factor n is needed because the connections of a reactor share the wire. The runtime does
	// not know other load on the wire, such as the load of the peer. If other load leaves less than
	// 8 MiB/s to a reactor, large transfers need a longer PeerTimeout. If the peer of a raw
	// connection posts no receive for a SEND, the SEND does not complete, as with a peer that does
	// not answer. Default DefaultPeerTimeout; negative: only the device's own limits apply.
	PeerTimeout time.Duration
	// KeepAlive is the longest time for which the peer may be silent without a probe. A probe is a
	// WRITE of zero bytes: one packet in each direction, which the peer's program does not notice. An
	// idle connection sends one probe in each interval of KeepAlive. So even a connection that only
	// waits for messages detects a lost peer, within KeepAlive plus the bound of PeerTimeout.
	// Default PeerTimeout; negative: no probes.
	KeepAlive time.Duration
	// AckTimeout is how long the device waits for an acknowledgment before it sends a request again.
	// RetryCount is how many times in a row the device sends the request again. If all retries stay
	// unacknowledged, the request and the connection fail with verbs.WCRetryExcErr. Each end of a
	// connection applies its own values. A connection without the connection manager uses the values
	// of PlainOptions.Path instead.
	//
	// AckTimeout is rounded up to 4.096 µs × a power of two. If the device's own delay
	// (verbs.DeviceAttr.AckDelay) is longer, the device uses its own delay. The device may wait up to
	// four times the time that it uses. The bound of PeerTimeout covers these retries.
	//
	// AckTimeout is at most 8796 s, which is 4.096 µs × 2^31. The default AckTimeout is the longest
	// time from 33 ms to 1.1 s with which the device gives up within PeerTimeout: 134 ms for the
	// default PeerTimeout, so the device gives up after 1.1 to 4.3 s. If no time in this range is short
	// enough, the default is 33 ms. If PeerTimeout is negative, the default is 1.1 s. RetryCount is at most 7, the largest value of the queue pair attribute. The
	// default RetryCount is DefaultRetryCount; negative: no retries.
	AckTimeout time.Duration
	RetryCount int
	// ReadDepth is how many READs and atomics may be outstanding on the wire in each direction; the device
	// holds further ones back. The peer's limit and the device's apply, too. Default DefaultReadDepth.
	ReadDepth int
	// TOS is the type of service (IPv4) or traffic class (IPv6) of the connection's packets. Its
	// upper 6 bits are the DSCP, its lower 2 bits the ECN. Both ends use the TOS of the dialing end.
	// If the request has none, or cannot carry it (iWARP), a kernel device uses that of each end.
	// The software RNIC applies it to UDP packets, and only on Linux. A connection without the
	// connection manager uses PlainOptions.Path.TrafficClass, or TOS if that is 0. Default 0.
	TOS uint8
	// Recorder is how many completed operations the flight recorder keeps, with their outcome and
	// the times of their start, posting and completion: see Conn.Recorded and Runtime.Stuck.
	// Default 0: no recorder and no cost. Negative: no recorder, even if Config.Conn has a Recorder.
	// A recorder costs at most three clock readings per operation. It takes some 100 bytes of memory
	// for each operation that it keeps, and for each operation that may be outstanding.
	Recorder int
	// Backlog is how many peers of a listener may wait to be accepted: requests, handshakes and
	// established connections together; see Listener. Each peer may hold the memory of a
	// connection: by default 2 receives of 8 KiB, and up to 65 if the program does not take the peer's
	// messages, so 65 MiB for 128 peers. The limit for unfinished handshakes is Backlog/2, and the limit
	// for unfinished handshakes from one address is Backlog/8. Each limit is at least 1. Only listeners
	// use Backlog. Default DefaultBacklog.
	Backlog int
	// Admit, if it is not nil, decides about each request of a listener, before the listener
	// allocates memory or a queue pair for the connection. If Admit returns an error, the request is
	// refused, and the peer's Dial returns a *RejectError with the error's text. To send data with
	// the refusal, Admit returns a *Refusal. The Request describes the peer. On a raw listener a
	// request waits for a call of Accept or PrepareAccept before Admit is called.
	//
	// The listener calls Admit on goroutines of its own, at most two at a time. Admit may block;
	// meanwhile other requests wait. The context ends when the request is no longer wanted: the
	// request was evicted, the peer gave up, or the listener or the runtime is being closed. Then
	// Admit must return soon, because Runtime.Close waits until Admit has returned. Admit must not
	// call Runtime.Close. Datagrams (ListenPacket) do not use Admit. Default nil: every request is
	// admitted.
	Admit func(context.Context, Request) error
	// PrivateData is sent to the peer with the connection request or the acceptance. A request
	// carries at most MaxDialData bytes, and an acceptance at most MaxAcceptData bytes. With Bare
	// these limits are verbs.MaxPrivateConnect and verbs.MaxPrivateAccept. The bytes are copied.
	PrivateData []byte

	// kind is the type of the queue pair (PlainOptions.Type); 0 means RC.
	kind verbs.QPType
	// least has the capacities that the program has set; 0 for those that are defaults, which are lowered
	// where the device has less.
	least reactor.Capacities
}

// demand sets o.least from the options that are set, and, where one is not, from d.
func (o *Options) demand(d reactor.Capacities) {
	o.least = reactor.Capacities{SendDepth: orDefault(o.SendDepth, d.SendDepth), MaxSGE: orDefault(o.MaxSGE, d.MaxSGE), Inline: orDefault(o.Inline, d.Inline)}
}

func (o Options) validate() (Options, error) {
	o.SendDepth = orDefault(o.SendDepth, DefaultSendDepth)
	if o.Raw {
		o.RecvCredits = orDefault(o.RecvCredits, DefaultRecvCredits)
	}
	o.MessageSize = orDefault(o.MessageSize, DefaultMessageSize)
	if o.MaxMessage = orDefault(o.MaxMessage, DefaultMaxMessage); o.MaxMessage > o.MessageSize && o.MaxMessage <= maxLargeMessage {
		o.MaxMessage = 1 << bits.Len(uint(o.MaxMessage-1))
	}
	o.RecvBudget = max(o.RecvBudget, o.MaxMessage)
	o.MaxSGE = orDefault(o.MaxSGE, DefaultMaxSGE)
	o.PeerTimeout = orDefault(o.PeerTimeout, DefaultPeerTimeout)
	o.RetryCount = orDefault(o.RetryCount, DefaultRetryCount)
	o.ReadDepth = orDefault(o.ReadDepth, DefaultReadDepth)
	o.Backlog = orDefault(o.Backlog, DefaultBacklog)
	if o.Inline = orDefault(o.Inline, DefaultInline); o.Inline < 0 {
		o.Inline = 0
	}
	o.Recorder = max(o.Recorder, 0)
	switch {
	case o.SendDepth < 1 || o.SendDepth > maxSends:
		return o, fmt.Errorf("%w: Options.SendDepth is %d, want 1 to %d", ErrConfig, o.SendDepth, maxSends)
	case o.RecvCredits < 0 || o.RecvCredits > maxCredits:
		return o, fmt.Errorf("%w: Options.RecvCredits is %d, want 1 to %d, or 0 for the default", ErrConfig, o.RecvCredits, maxCredits)
	case o.MessageSize < minMessageSize || o.MessageSize > 1<<30:
		return o, fmt.Errorf("%w: Options.MessageSize is %d, want %d to %d", ErrConfig, o.MessageSize, minMessageSize, 1<<30)
	case o.MaxMessage > maxLargeMessage:
		return o, fmt.Errorf("%w: Options.MaxMessage is %d, want at most %d", ErrConfig, o.MaxMessage, maxLargeMessage)
	case o.MaxSGE < 1 || o.MaxSGE > maxPieces:
		return o, fmt.Errorf("%w: Options.MaxSGE is %d, want 1 to %d", ErrConfig, o.MaxSGE, maxPieces)
	case o.PeerTimeout > 0 && o.PeerTimeout < minPeerTimeout || o.KeepAlive > 0 && o.KeepAlive < minPeerTimeout:
		return o, fmt.Errorf("%w: Options.PeerTimeout is %v and KeepAlive %v, want at least %v, or less than 0 for none", ErrConfig, o.PeerTimeout, o.KeepAlive, minPeerTimeout)
	case o.AckTimeout < 0 || o.AckTimeout > longestAckTimeout:
		return o, fmt.Errorf("%w: Options.AckTimeout is %v, want at most %v", ErrConfig, o.AckTimeout, longestAckTimeout)
	case o.RetryCount > DefaultRetryCount:
		return o, fmt.Errorf("%w: Options.RetryCount is %d, want at most %d", ErrConfig, o.RetryCount, DefaultRetryCount)
	case o.ReadDepth < 1 || o.ReadDepth > maxReadDepth:
		return o, fmt.Errorf("%w: Options.ReadDepth is %d, want 1 to %d", ErrConfig, o.ReadDepth, maxReadDepth)
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

// depth is how many READs and atomics a connection with the options o may have outstanding.
func (rt *Runtime) depth(o Options) uint8 { return min(uint8(o.ReadDepth), rt.reads) }

// fits returns an error if the device's port cannot carry messages of o.MessageSize.
func (rt *Runtime) fits(o Options) error {
	if largest := rt.shards[0].r.MaxMessage(); !o.Raw && o.MessageSize > largest-frameSize {
		return fmt.Errorf("%w: Options.MessageSize is %d, the port of %s carries %d, including a header of %d",
			ErrConfig, o.MessageSize, rt.dev.Device().Name, largest, frameSize)
	}
	return nil
}

// inherit returns o with the runtime's options (Config.Conn) in place of the options that are not
// set, and validates the result. Do not pass the result to inherit again: in the result an Inline of
// 0 means that no bytes are sent inline, but inherit would take this 0 as not set.
func (rt *Runtime) inherit(o Options) (Options, error) {
	d := rt.cfg.Conn
	o.demand(d.least)
	o.Raw, o.Bare, o.Windows = o.Raw || d.Raw, o.Bare || d.Bare, o.Windows || d.Windows
	o.SendDepth = orDefault(o.SendDepth, d.SendDepth)
	o.RecvCredits = orDefault(o.RecvCredits, d.RecvCredits)
	o.MessageSize = orDefault(o.MessageSize, d.MessageSize)
	o.MaxMessage = orDefault(o.MaxMessage, d.MaxMessage)
	o.RecvBudget = orDefault(o.RecvBudget, d.RecvBudget)
	o.MaxSGE = orDefault(o.MaxSGE, d.MaxSGE)
	o.PeerTimeout = orDefault(o.PeerTimeout, d.PeerTimeout)
	o.KeepAlive = orDefault(o.KeepAlive, d.KeepAlive)
	o.AckTimeout = orDefault(o.AckTimeout, d.AckTimeout)
	o.RetryCount = orDefault(o.RetryCount, d.RetryCount)
	o.ReadDepth = orDefault(o.ReadDepth, d.ReadDepth)
	o.TOS = orDefault(o.TOS, d.TOS)
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
	if o.Admit == nil {
		o.Admit = d.Admit
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
