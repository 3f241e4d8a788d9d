package verbstest

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// capNames are texts for missing capabilities.
var capNames = []struct {
	bit  verbs.DeviceCaps
	what string
}{
	{verbs.CapMemWindow, "type 1 memory windows"},
	{verbs.CapMemWindow2B, "type 2B memory windows"},
	{verbs.CapMemMgt, "memory management extensions (LOCAL_INV, SEND_WITH_INV)"},
	{verbs.CapXRC, "XRC"},
	{verbs.CapFlushGlobal, "FLUSH to visibility"},
	{verbs.CapFlushPersistent, "FLUSH to persistence"},
	{verbs.CapAtomicWrite, "ATOMIC_WRITE"},
	{verbs.CapSRQResize, "resizing of shared receive queues"},
}

// lacksObjects returns the missing optional objects and helpers of the tester; "" when the pair
// has all that the case needs.
func (n *needs) lacksObjects(c *Caps) string {
	for _, x := range capNames {
		if n.caps&x.bit != 0 && c.Device&x.bit == 0 {
			return "no " + x.what
		}
	}
	switch {
	case n.srq && c.MaxSRQ == 0:
		return "no shared receive queues"
	case n.ah && c.MaxAH == 0:
		return "no address handles"
	case n.mcast > c.MaxMcastQP:
		return fmt.Sprintf("%d queue pairs of one multicast group needed, %d possible", n.mcast, c.MaxMcastQP)
	case n.resize && !c.CQResize:
		return "completion queues cannot be resized"
	case n.lastWQE && !c.LastWQE:
		return "LAST_WQE_REACHED is not raised"
	case n.checked && !c.CheckedHandles:
		return "handles in work requests are followed unchecked"
	case n.persist && c.Persistent == nil:
		return "no memory that survives"
	case n.devices && c.Devices == nil:
		return "devices cannot be unplugged, nor ports taken down"
	case n.udp && !c.CMUDP:
		return "no port space UDP"
	case n.odp&^c.ODP.General != 0:
		return "no memory on demand, or not of that kind"
	case n.odpRC&^c.ODP.RC != 0:
		return fmt.Sprintf("no %v on memory on demand", n.odpRC&^c.ODP.RC)
	case n.dmabuf && c.DMABuf == nil:
		return "no memory of another device"
	case n.join && !c.CMMcast:
		return "the connection manager joins no multicast groups"
	}
	return ""
}
