package runtime

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// firstLook is how long the first question for an address may take. It doubles with
// each.
const firstLook = 50 * time.Millisecond

// addressing finds the way to an address, asking more than once:
//
//	ask ──> asked ── ADDR_RESOLVED ──> found
//	          │ ADDR_ERROR, out of time: ask again, for twice as long
//
// The kernel may miss the answer to its own question: it sends the ARP request
// first and puts itself on the list of those who wait for answers after that
// (Linux 6.12 drivers/infiniband/core/addr.c, rdma_resolve_ip and
// netevent_callback). A neighbour on a virtual cable answers in between, always.
// The kernel looks once more when its time is over, and finds the address then: so
// it is given little time at a time. Whoever asks bounds the whole. Holder only.
type addressing struct {
	src, dst netip.AddrPort
	look     time.Duration // of the question under way
}

// ask begins, or begins again. ADDR_RESOLVED or ADDR_ERROR follows.
func (a *addressing) ask(id verbs.CMID) error {
	a.look = max(firstLook, 2*a.look)
	return id.ResolveAddr(a.src, a.dst, a.look)
}

// late tells whether an event says only that the time was too short.
func (a *addressing) late(ev *verbs.CMEvent) bool {
	return ev.Type == verbs.CMAddrError && ev.Status == -int(syscall.ETIMEDOUT)
}
