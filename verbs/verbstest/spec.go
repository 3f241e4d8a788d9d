package verbstest

import (
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// Spec is one case of the suite.
type Spec struct {
	Name string // after the rule
	Rule string // the source of the rule
	// Topic is the part of the suite that contains the case; Cases sets it.
	Topic string
	// needs are the requirements on the pair; run is the case.
	needs needs
	run   func(c *Case)
}

// needs are the requirements of a case. The zero value requires RC queue pairs only.
type needs struct {
	kinds   []verbs.QPType // queue pair types; nil: RC
	ops     verbs.OpcodeSet
	mtu     verbs.MTU // this path MTU or a larger one
	sge     int
	inline  int
	rdAtom  int
	faults  bool
	packets bool // faults of single packets
	clock   bool
	cm      bool
	overrun bool
	access  bool
	commEst bool
	random  bool
	caps    verbs.DeviceCaps // of both devices
	srq     bool
	ah      bool
	mcast   int // queue pairs attached to one group
	resize  bool
	lastWQE bool
	checked bool
	persist bool
	devices bool
	udp     bool
	join    bool
	odp     verbs.ODPGeneral // of both devices
	odpRC   verbs.ODPOps     // of both, on RC queue pairs
	dmabuf  bool
}

// Requirements common to many cases.
var (
	sendOnly     = needs{ops: verbs.Opcodes(verbs.WRSend)}
	writeOnly    = needs{ops: verbs.Opcodes(verbs.WRRDMAWrite)}
	readOnly     = needs{ops: verbs.Opcodes(verbs.WRRDMARead), rdAtom: 1}
	writeImm     = needs{ops: verbs.Opcodes(verbs.WRRDMAWriteWithImm)}
	atomicOnly   = needs{ops: verbs.Opcodes(verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd), rdAtom: 1}
	sendWrite    = needs{ops: verbs.Opcodes(verbs.WRSend, verbs.WRRDMAWrite)}
	messagesOnly = needs{ops: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm)}
	everyOp      = needs{ops: verbs.Opcodes(verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
		verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd), rdAtom: 1}
)

// onFaults requires a fault script.
func (n needs) onFaults() needs { n.faults = true; return n }

// onPackets requires a fault script that names single packets.
func (n needs) onPackets() needs { n.faults, n.packets = true, true; return n }

// Cases lists the suite in the order of execution.
func Cases() (out []Spec) {
	for _, t := range topics {
		for _, s := range t.cases {
			s.Topic = t.name
			out = append(out, s)
		}
	}
	return out
}

// lacks returns the reason why the pair cannot run the case; "" when it can.
func (s *Spec) lacks(c *Caps) string {
	n := &s.needs
	if why, ok := c.Deviations[s.Name]; ok {
		return "known deviation: " + why
	}
	kinds := n.kinds
	if kinds == nil {
		kinds = []verbs.QPType{verbs.QPTRC}
	}
	for _, k := range kinds {
		if !slices.Contains(c.QPTypes, k) {
			return fmt.Sprintf("no %v queue pairs", k)
		}
	}
	for o := verbs.WROpcode(0); o < 32; o++ {
		if n.ops.Has(o) && !c.Opcodes.Has(o) {
			return fmt.Sprintf("no %v", o)
		}
	}
	switch {
	case !mtuFits(n.mtu, c.MTU):
		return fmt.Sprintf("path MTU of %d bytes needed, the link has %d", n.mtu.Bytes(), c.MTU.Bytes())
	case n.sge > c.MaxSGE:
		return fmt.Sprintf("%d scatter-gather elements needed, %d there", n.sge, c.MaxSGE)
	case n.inline > c.MaxInline:
		return fmt.Sprintf("%d bytes inline needed, %d there", n.inline, c.MaxInline)
	case n.rdAtom > c.MaxRdAtom:
		return fmt.Sprintf("%d outstanding READs needed, %d there", n.rdAtom, c.MaxRdAtom)
	case n.faults && c.Faults == nil:
		return "no fault script"
	case n.packets && c.Coarse:
		return "the fault script names no single packets"
	case n.clock && c.Clock == nil:
		return "no virtual clock"
	case n.cm && !c.CM:
		return "no connection manager"
	case n.overrun && !c.CQOverrun:
		return "completion queue overrun is not reported"
	case n.access && !c.AccessEvents:
		return "access violations raise no event at the responder"
	case n.commEst && !c.CommEst:
		return "communication established is not reported"
	case n.random && !c.RandomKeys:
		return "keys are not random"
	}
	return n.lacksObjects(c)
}

// mtuFits reports whether a queue pair can use path MTU m on a link of MTU have. A link that
// carries whole messages carries all smaller packets too.
func mtuFits(m, have verbs.MTU) bool { return m == 0 || m <= have }

// NeedsScript reports whether the case can only run where the tester scripts the link or the
// clock. If such a case is not applicable, that is not a property of the provider.
func (s *Spec) NeedsScript() bool { return s.needs.faults || s.needs.clock }
