package verbstest

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// Pair describes a run of the suite.
type Pair struct {
	// Name of the run: a file name, used in the report.
	Name string
	// A is the active end, B the passive one. They may share a device but
	// not a Context.
	A, B Endpoint
	// Device reports that both ends are kernel devices, so that a pass proves the behavior on
	// one.
	Device bool
	// Caps are the capabilities of both ends and the link between them.
	Caps Caps
	// Exchange carries connection records between the ends; nil when both
	// are in this process.
	Exchange Exchanger
	// MTU is the path MTU that cases use unless they are about MTUs; 0 is
	// the largest both ports have.
	MTU verbs.MTU
	// MinTimeout is the code of the shortest local ACK timeout that cases use, except 0. Default: any.
	// For ends on two goroutines: a peer that does not get a processor for a millisecond is not lost.
	MinTimeout uint8
	// Patience is how long, in real or virtual time, the suite waits for an expected event.
	// Default: 20 s in real time, 10 min in virtual time.
	Patience time.Duration
	// Quiet is how long it waits to check that something does not happen. Default: 2 ms.
	Quiet time.Duration
}

// Endpoint is one end of a pair.
type Endpoint struct {
	Provider verbs.Provider
	Context  verbs.Context
	Port     uint8      // default: that of verbs.ChoosePort
	GIDIndex uint8      // 0: the choice of verbs.ChooseGID
	Addr     netip.Addr // for the connection manager; default: that of the GID, or on InfiniBand the device's first
}

// chooseAddr sets the default of Addr.
func (e *Endpoint) chooseAddr() error {
	if e.Addr.IsValid() {
		return nil
	}
	port, err := e.Context.QueryPort(e.Port)
	if err != nil {
		return err
	}
	if own := e.Context.Device().Addr; port.LinkLayer == verbs.LinkInfiniBand && len(own) > 0 {
		e.Addr = own[0]
		return nil
	}
	g, err := e.Context.QueryGID(e.Port, int(e.GIDIndex))
	e.Addr = g.Addr()
	return err
}

// Caps are the capabilities of a pair. A case that needs more is not applicable.
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
	// Coarse reports that Faults supports probabilities and times only: no Drop, Repeat or Late.
	Coarse bool
	// CM: the provider connects through CM channels. CMOnly: queue pairs are connected in no other way (iWARP).
	CM, CMOnly bool
	// CQOverrun: a full completion queue fails with CQ_ERR (some devices cannot detect it).
	CQOverrun bool
	// AccessEvents: a responder that refused a request raises QP_ACCESS_ERR
	// or QP_REQ_ERR.
	AccessEvents bool
	// CommEst: a packet that arrives in RTR raises COMM_EST.
	CommEst bool
	// RandomKeys: keys are drawn at random.
	RandomKeys bool
	// Device are the further capabilities that both devices report.
	Device verbs.DeviceCaps
	// Optional objects; 0: none.
	MaxSRQ, MaxAH, MaxMcastQP int
	// CQResize: completion queues can be resized.
	CQResize bool
	// LastWQE: LAST_WQE_REACHED is raised (not all devices do: ceph#25447).
	LastWQE bool
	// CheckedHandles: an invalid or stale handle in a work request is refused. A C library
	// dereferences it as a pointer.
	CheckedHandles bool
	// CMUDP and CMMcast: the connection manager has port space UDP, and joins
	// multicast groups.
	CMUDP, CMMcast bool
	// Persistent maps memory that a FLUSH can make persistent; nil: there is none. The case
	// unmaps it.
	Persistent func(size int) (*mem.Arena, error)
	// ODP are the on-demand paging capabilities common to both devices.
	ODP verbs.ODPCaps
	// DMABuf makes memory that stands for another device's; nil: there is none.
	DMABuf func(size int) (*DMABuf, error)
	// Devices unplugs devices and takes ports down; nil: not supported.
	Devices Devices
	// Deviations are the cases in which the provider is known to differ from the rule, by name,
	// with the reason. They are not applicable; each needs a public source.
	Deviations map[string]string
}

// Clock is virtual time. The suite calls it from one goroutine. A virtual fabric of the software
// RNIC provides it.
type Clock interface {
	Now() time.Duration
	// Step runs all work that is due now and reports whether there was any.
	Step() bool
	// NextEvent is the time of the next timer; ok is false if none runs.
	NextEvent() (at time.Duration, ok bool)
	// AdvanceTo moves time forward to at.
	AdvanceTo(at time.Duration)
}

// Devices controls ports and device removal, for which the contract has no call. The suite calls
// it from one goroutine. Each call concerns a device of A's provider, by name, and returns when
// it has taken effect there.
type Devices interface {
	// Devices controls ports and device removal, for which the contract has no call. The suite
	// calls it from one goroutine. Each call concerns a device of A's provider, by name, and
	// returns when it has taken effect there.
	Spare() string
	// Remove unplugs a device while it is in use.
	Remove(device string) error
	// Restore plugs it in again, under the name and address it had.
	Restore(device string) error
	// SetPort takes the port of a device down, or up again.
	SetPort(device string, up bool) error
}

// Faults scripts the links. Each direction of a link is scripted separately.
type Faults interface {
	// Set replaces the script of the packets from one port to another.
	Set(from, to verbs.GID, f Fault)
	// Heal removes all scripts.
	Heal()
}

// Fault is the script of one direction of a link.
type Fault struct {
	Loss, Dup, Reorder float64 // probability of each packet
	Delay, Jitter      time.Duration
	Down               bool // nothing passes
	// Drop and Repeat name single packets, counted from 1 from Set on.
	Drop, Repeat []uint64
	// Late delays single packets, by number as above.
	Late map[uint64]time.Duration
}

// CapsOf queries the limits of both devices and takes the lesser of each. The caller sets the
// capabilities that a device cannot report (Faults, Clock, CM and the members after it). It does
// not block.
func CapsOf(a, b verbs.Context) (Caps, error) {
	var c Caps
	for i, ctx := range []verbs.Context{a, b} {
		d, err := ctx.QueryDevice()
		if err != nil {
			return c, err
		}
		port, err := verbs.ChoosePort(ctx)
		if err != nil {
			return c, err
		}
		p, err := ctx.QueryPort(port)
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

// validate fills in the defaults and refuses a pair that cannot be run.
func (p *Pair) validate() error {
	for name, e := range map[string]*Endpoint{"A": &p.A, "B": &p.B} {
		if e.Provider == nil || e.Context == nil {
			return fmt.Errorf("verbstest: endpoint %s has no provider or no context", name)
		}
		if e.Port == 0 {
			port, err := verbs.ChoosePort(e.Context)
			if err != nil {
				return fmt.Errorf("verbstest: endpoint %s: %w", name, err)
			}
			e.Port = port
		}
		if e.GIDIndex == 0 {
			g, err := verbs.ChooseGID(e.Context, e.Port)
			if err != nil {
				return fmt.Errorf("verbstest: endpoint %s: %w", name, err)
			}
			e.GIDIndex = uint8(g.Index)
		}
		if err := e.chooseAddr(); err != nil {
			return fmt.Errorf("verbstest: endpoint %s: %w", name, err)
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
