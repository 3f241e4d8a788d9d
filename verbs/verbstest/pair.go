package verbstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// Pair is what a run of the suite tests.
type Pair struct {
	// Name of the run: a file name, used in the report.
	Name string
	// A is the active end, B the passive one. They may share a device but
	// not a Context.
	A, B Endpoint
	// Device says that both ends are devices of a kernel, so that what passes here
	// is proven on one.
	Device bool
	// Caps is what both ends and the link between them can do.
	Caps Caps
	// Exchange carries connection records between the ends; nil when both
	// are in this process.
	Exchange Exchanger
	// MTU is the path MTU that cases use unless they are about MTUs; 0 is
	// the largest both ports have.
	MTU verbs.MTU
	// Patience is how long, in real or virtual time, the suite waits for what
	// must happen. Default: 20 s in real time, 10 min in virtual time.
	Patience time.Duration
	// Quiet is how long it waits to see that something does not happen.
	// Default: 2 ms.
	Quiet time.Duration
}

// Endpoint is one end of a pair.
type Endpoint struct {
	Provider verbs.Provider
	Context  verbs.Context
	Port     uint8 // default 1
	GIDIndex uint8 // 0: the one that verbs.ChooseGID chooses
}

// Caps is what a pair can do. A case that needs more is not applicable.
type Caps struct {
	Opcodes   verbs.OpcodeSet
	QPTypes   []verbs.QPType
	MTU       verbs.MTU // largest path MTU
	MaxMsg    uint64    // bytes of one message
	MaxSGE    int
	MaxInline int
	MaxQPWR   int
	MaxRdAtom int // READs and atomics outstanding
	// Faults and Clock are nil where there are none.
	Faults Faults
	Clock  Clock
	// Coarse says that Faults knows probabilities and times only: no Drop, Repeat
	// or Late.
	Coarse bool
	// CM: the provider connects through CM channels.
	CM bool
	// CQOverrun: a full completion queue dies with CQ_ERR (some devices
	// cannot tell).
	CQOverrun bool
	// AccessEvents: a responder that refused a request raises QP_ACCESS_ERR
	// or QP_REQ_ERR.
	AccessEvents bool
	// CommEst: a packet that comes in RTR raises COMM_EST.
	CommEst bool
	// RandomKeys: keys are drawn at random.
	RandomKeys bool
	// Device is what both devices say they can do besides.
	Device verbs.DeviceCaps
	// Objects that not every device has; 0: none.
	MaxSRQ, MaxAH, MaxMcastQP int
	// CQResize: completion queues can be resized.
	CQResize bool
	// LastWQE: LAST_WQE_REACHED is raised (not all devices do: ceph#25447).
	LastWQE bool
	// CheckedHandles: a handle in a work request that is none (any more) is
	// refused. A C library follows it as the pointer it is.
	CheckedHandles bool
	// CMUDP and CMMcast: the connection manager has port space UDP, and joins
	// multicast groups.
	CMUDP, CMMcast bool
	// Persistent maps memory that a FLUSH can make persistent; nil: there is
	// none. The case unmaps it.
	Persistent func(size int) (*mem.Arena, error)
	// ODP is what both devices do with memory on demand.
	ODP verbs.ODPCaps
	// DMABuf makes memory that stands for another device's; nil: there is none.
	DMABuf func(size int) (*DMABuf, error)
	// Devices unplugs devices and takes ports down; nil: nobody can.
	Devices Devices
	// Deviations are the cases in which the provider is known to differ from
	// the rule, by name, and why. They are not applicable; each needs a
	// public source.
	Deviations map[string]string
}

// Clock is virtual time. The suite calls it from one goroutine. It is what a
// virtual fabric of the software RNIC provides.
type Clock interface {
	Now() time.Duration
	// Step lets everything act that has something to do now; false when
	// nothing had.
	Step() bool
	// NextEvent is the time of the next timer; ok is false if none runs.
	NextEvent() (at time.Duration, ok bool)
	// AdvanceTo moves time forward to at.
	AdvanceTo(at time.Duration)
}

// Devices is a hand on the cables: the contract has no call for any of this.
// The suite calls it from one goroutine. Every call is on a device of A's
// provider, by name, and returns when it has taken effect there.
type Devices interface {
	// Spare names a device that the pair does not use. The suite unplugs it, and
	// has plugged it in again when its case is done.
	Spare() string
	// Remove unplugs a device while it is in use.
	Remove(device string) error
	// Restore plugs it in again, under the name and address it had.
	Restore(device string) error
	// SetPort takes the port of a device down, or up again.
	SetPort(device string, up bool) error
}

// Faults scripts the links. Each direction of a link is scripted apart.
type Faults interface {
	// Set replaces the script of what goes from one port to another.
	Set(from, to verbs.GID, f Fault)
	// Heal ends every script.
	Heal()
}

// Fault is the script of one direction of a link.
type Fault struct {
	Loss, Dup, Reorder float64 // probability of each packet
	Delay, Jitter      time.Duration
	Down               bool // nothing passes
	// Drop and Repeat name single packets, counted from 1 from Set on.
	Drop, Repeat []uint64
	// Late holds single packets back, by number as above.
	Late map[uint64]time.Duration
}

// CapsOf asks both devices for their limits and takes the lesser of each. What
// a device cannot be asked (Faults, Clock, CM and the ones behind it) is left
// for the caller. It does not block.
func CapsOf(a, b verbs.Context) (Caps, error) {
	var c Caps
	for i, ctx := range []verbs.Context{a, b} {
		d, err := ctx.QueryDevice()
		if err != nil {
			return c, err
		}
		p, err := ctx.QueryPort(1)
		if err != nil {
			return c, err
		}
		n := Caps{
			Opcodes: d.Opcodes, QPTypes: d.QPTypes, MTU: p.ActiveMTU, MaxMsg: uint64(p.MaxMsgSize),
			MaxSGE: d.MaxSGE, MaxInline: d.MaxInline, MaxQPWR: d.MaxQPWR,
			MaxRdAtom: min(d.MaxQPRdAtom, d.MaxQPInitRdAtom),
			Device:    d.Caps, MaxSRQ: d.MaxSRQ, MaxAH: d.MaxAH, MaxMcastQP: d.MaxMcastQP, ODP: d.ODP,
		}
		if i == 0 {
			c = n
			continue
		}
		c.Opcodes &= n.Opcodes
		c.QPTypes = both(c.QPTypes, n.QPTypes)
		c.MTU = min(c.MTU, n.MTU)
		c.MaxMsg = min(c.MaxMsg, n.MaxMsg)
		c.MaxSGE = min(c.MaxSGE, n.MaxSGE)
		c.MaxInline = min(c.MaxInline, n.MaxInline)
		c.MaxQPWR = min(c.MaxQPWR, n.MaxQPWR)
		c.MaxRdAtom = min(c.MaxRdAtom, n.MaxRdAtom)
		c.Device &= n.Device
		c.MaxSRQ = min(c.MaxSRQ, n.MaxSRQ)
		c.MaxAH = min(c.MaxAH, n.MaxAH)
		c.MaxMcastQP = min(c.MaxMcastQP, n.MaxMcastQP)
		c.ODP.General &= n.ODP.General
		c.ODP.RC &= n.ODP.RC
	}
	return c, nil
}

func both(a, b []verbs.QPType) (out []verbs.QPType) {
	for _, t := range a {
		for _, u := range b {
			if t == u {
				out = append(out, t)
			}
		}
	}
	return out
}

// validate fills the defaults in and refuses a pair that cannot be run.
func (p *Pair) validate() error {
	for name, e := range map[string]*Endpoint{"A": &p.A, "B": &p.B} {
		if e.Provider == nil || e.Context == nil {
			return fmt.Errorf("verbstest: endpoint %s has no provider or no context", name)
		}
		if e.Port == 0 {
			e.Port = 1
		}
		if e.GIDIndex == 0 {
			g, err := verbs.ChooseGID(e.Context, e.Port)
			if err != nil {
				return fmt.Errorf("verbstest: endpoint %s: %w", name, err)
			}
			e.GIDIndex = uint8(g.Index)
		}
	}
	if p.A.Context == p.B.Context {
		return errors.New("verbstest: both endpoints have the same context")
	}
	if p.Name == "" {
		p.Name = p.A.Provider.Name() + "_" + p.B.Provider.Name()
	}
	if p.MTU == 0 {
		p.MTU = p.Caps.MTU
	}
	if p.MTU.Bytes() == 0 {
		return fmt.Errorf("verbstest: path MTU %d is none", p.MTU)
	}
	if p.Exchange == nil {
		p.Exchange = direct{}
	}
	if p.Patience == 0 {
		p.Patience = 20 * time.Second
		if p.Caps.Clock != nil {
			p.Patience = 10 * time.Minute
		}
	}
	if p.Quiet == 0 {
		p.Quiet = 2 * time.Millisecond
	}
	return nil
}
