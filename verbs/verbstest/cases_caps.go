package verbstest

import (
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

var capsCases = []Spec{
	{Name: "caps_cover_the_device", Rule: "design: probes that turn an unjustified skip into a failure", run: capsCover},
	{Name: "port_is_active_and_carries_the_path_mtu", Rule: "ibv_query_port(3)", run: portActive},
}

// capsCover checks that no case is skipped for a feature that the devices report.
func capsCover(c *Case) {
	have, err := CapsOf(c.A.ctx, c.B.ctx)
	c.must(err, "asking the devices")
	said := c.pair.Caps
	for o := verbs.WROpcode(0); o < 32; o++ {
		if have.Opcodes.Has(o) && !said.Opcodes.Has(o) {
			c.failf("both devices execute %v, the capability record leaves it out", o)
		}
	}
	for _, t := range have.QPTypes {
		if !slices.Contains(said.QPTypes, t) {
			c.failf("both devices have queue pairs of type %v, the capability record leaves them out", t)
		}
	}
	if said.MTU < have.MTU || said.MaxSGE < have.MaxSGE || said.MaxInline < have.MaxInline || said.MaxRdAtom < have.MaxRdAtom {
		c.failf("the devices have %+v, the capability record says %+v", have, said)
	}
	if have.ODP.General&^said.ODP.General != 0 || have.ODP.RC&^said.ODP.RC != 0 {
		c.failf("both devices have %+v of memory on demand, the capability record says %+v", have.ODP, said.ODP)
	}
	// A clock or fault script that does nothing would make its cases pass.
	if k := said.Clock; k != nil {
		t := k.Now() + 1000
		k.AdvanceTo(t)
		if k.Now() != t {
			c.failf("the virtual clock was moved to %v and says %v", t, k.Now())
		}
	}
	if said.Faults != nil {
		a, _ := c.link(func(o *opts) { o.timeout, o.retry = fastTimeout, 1 })
		c.fault(c.A, c.B, Fault{Down: true})
		a.send(SR{id: 1, op: verbs.WRSend, flags: signaled})
		a.failed(a.scq.one(), 1, verbs.WCRetryExcErr)
	}
}

func portActive(c *Case) {
	for _, e := range []*End{c.A, c.B} {
		p, err := e.ctx.QueryPort(e.ep.Port)
		c.must(err, "query_port")
		if p.State != verbs.PortActive || p.ActiveMTU > p.MaxMTU || p.ActiveMTU < c.pair.MTU || p.GIDTblLen < 1 || p.MaxMsgSize == 0 {
			c.failf("the port of %s is %+v, the path MTU %d", e.name, p, c.pair.MTU)
		}
		if e.gid == (verbs.GID{}) {
			c.failf("the port of %s has no address", e.name)
		}
	}
}
