package bootstrap

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Defaults of Path: those of the ibv_*_pingpong programs where they have one.
const (
	DefaultMTU         = verbs.MTU1024
	DefaultTimeout     = 14 // 4.096 µs × 2^14 = 67 ms
	DefaultRetryCount  = 7
	DefaultMinRNRTimer = 12 // 0.64 ms
	DefaultRdAtomic    = 1
	DefaultHopLimit    = 64 // the programs' default of 1 does not pass a router
	DefaultQKey        = 0x11111111

	// RemoteAccess is all access that a queue pair can permit its peer; the keys decide to which
	// memory and for which use.
	RemoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

	maxCode  = 31 // of timers: 5 bits
	maxRetry = 7  // 3 bits
	maxSL    = 15 // 4 bits
)

// Path holds the connection parameters of two queue pairs that their owners must agree on
// beforehand. The zero value is the behavior of the ibv_*_pingpong programs without options
// except -g.
type Path struct {
	// Port of the device, from 1; default: the choice of verbs.ChoosePort.
	Port uint8
	// GIDIndex is the index of the address to send from, plus one; 0 means the choice of
	// verbs.ChooseGID.
	GIDIndex int
	// MTU must be the same at both ends; default DefaultMTU (option -m).
	MTU verbs.MTU
	// SL is the service level; 0 to 15 (option -l).
	SL           uint8
	TrafficClass uint8
	HopLimit     uint8 // default DefaultHopLimit
	PKeyIndex    uint16
	// Timeout is the code of the local ACK timeout (verbs.AckTimeout); default DefaultTimeout, or the
	// device's own delay (verbs.DeviceAttr.AckDelay) if that is larger.
	// RetryCount is how often an unanswered request is repeated, 1 to 7; default 7. RC only.
	Timeout    uint8
	RetryCount uint8
	// NoRNRRetry makes a send to a peer without a posted receive fail; by default it is retried
	// without limit. MinRNRTimer is the code of how long the peer waits between tries
	// (verbs.RNRTimeout); default DefaultMinRNRTimer. RC only.
	NoRNRRetry  bool
	MinRNRTimer uint8
	// RdAtomic is how many READs and atomics may be outstanding from here: no more than the
	// peer's DestRdAtomic. DestRdAtomic is how many are served at the same time. Default
	// DefaultRdAtomic each, which C programs serve, or none where the device has none. RC only.
	RdAtomic, DestRdAtomic uint8
	// Access is the peer's access to memory whose keys it knows; default RemoteAccess and the
	// kinds of FLUSH that the device has, on UC the part of them that UC supports.
	Access verbs.AccessFlags
	// QKey of datagrams; default DefaultQKey. UD only.
	QKey uint32
}

// complete returns p with its defaults, or the reason why it is invalid.
func (p Path) complete() (Path, error) {
	p.MTU = or(p.MTU, DefaultMTU)
	p.HopLimit = or(p.HopLimit, DefaultHopLimit)
	p.RetryCount = or(p.RetryCount, DefaultRetryCount)
	p.MinRNRTimer = or(p.MinRNRTimer, DefaultMinRNRTimer)
	p.QKey = or(p.QKey, DefaultQKey)
	switch {
	case p.MTU.Bytes() == 0:
		return p, fmt.Errorf("%w: Path.MTU %d is none", verbs.ErrInvalid, p.MTU)
	case p.GIDIndex < 0 || p.GIDIndex > 1<<8:
		return p, fmt.Errorf("%w: Path.GIDIndex is %d, want 0 to 256", verbs.ErrInvalid, p.GIDIndex)
	case p.SL > maxSL || p.Timeout > maxCode || p.MinRNRTimer > maxCode || p.RetryCount > maxRetry:
		return p, fmt.Errorf("%w: Path.SL %d, Timeout %d, MinRNRTimer %d or RetryCount %d is too large", verbs.ErrInvalid, p.SL, p.Timeout, p.MinRNRTimer, p.RetryCount)
	}
	return p, nil
}

// or returns v, or d where v is zero.
func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// On returns p with its defaults and its address chosen, and that address; verbs.ErrNoGID on a
// device without one. A completed Path stays the same when the table of addresses changes. Any
// goroutine may call it; it makes system calls.
//
// Implements: ibv_query_port, ibv_query_gid, ibv_query_device.
func (p Path) On(ctx verbs.Context) (_ Path, own Dest, err error) {
	if p, err = p.complete(); err != nil {
		return p, own, err
	}
	if p.Port == 0 {
		if p.Port, err = verbs.ChoosePort(ctx); err != nil {
			return p, own, err
		}
	}
	if p.GIDIndex == 0 {
		e, err := verbs.ChooseGID(ctx, p.Port)
		if err != nil {
			return p, own, err
		}
		p.GIDIndex = e.Index + 1
	}
	if own.GID, err = ctx.QueryGID(p.Port, p.GIDIndex-1); err != nil {
		return p, own, err
	}
	if own.GID == (verbs.GID{}) { // the kernel reads an empty entry as zeros
		return p, own, fmt.Errorf("%w: Path.GIDIndex %d: entry %d of port %d of %v is empty", verbs.ErrInvalid, p.GIDIndex, p.GIDIndex-1, p.Port, ctx)
	}
	port, err := ctx.QueryPort(p.Port)
	if err != nil {
		return p, own, err
	}
	own.LID = port.LID
	device, err := ctx.QueryDevice()
	if err != nil {
		return p, own, err
	}
	if int(p.RdAtomic) > device.MaxQPInitRdAtom || int(p.DestRdAtomic) > device.MaxQPRdAtom {
		return p, own, fmt.Errorf("%w: Path.RdAtomic %d and Path.DestRdAtomic %d: %v has at most %d and %d",
			verbs.ErrInvalid, p.RdAtomic, p.DestRdAtomic, ctx, device.MaxQPInitRdAtom, device.MaxQPRdAtom)
	}
	p.Timeout = or(p.Timeout, max(DefaultTimeout, device.AckDelay))
	p.RdAtomic = or(p.RdAtomic, uint8(min(DefaultRdAtomic, device.MaxQPInitRdAtom)))
	p.DestRdAtomic = or(p.DestRdAtomic, uint8(min(DefaultRdAtomic, device.MaxQPRdAtom)))
	if p.Access == 0 {
		p.Access = RemoteAccess
		if device.Caps&verbs.CapFlushGlobal != 0 {
			p.Access |= verbs.AccessFlushGlobal
		}
		if device.Caps&verbs.CapFlushPersistent != 0 {
			p.Access |= verbs.AccessFlushPersistent
		}
	}
	return p, own, nil
}

// ah is the address of a peer.
func (p Path) ah(peer Dest) verbs.AHAttr {
	return verbs.AHAttr{DGID: peer.GID, SGIDIndex: uint8(p.GIDIndex - 1), HopLimit: p.HopLimit, TrafficClass: p.TrafficClass,
		DLID: peer.LID, SL: p.SL, Port: p.Port}
}
