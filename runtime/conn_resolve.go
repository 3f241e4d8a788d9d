package runtime

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// firstLook is the timeout of the first attempt to resolve an address. Each further attempt has
// twice the timeout of the previous attempt.
const firstLook = 50 * time.Millisecond

// addrResolver resolves an IP address to the peer's hardware address, in several attempts:
//
//	ask ──> asked ── ADDR_RESOLVED ──> found
//	          │ ADDR_ERROR, timed out: ask again with twice the timeout
//
// The kernel may miss the ARP reply, because it sends the ARP request before it registers for the
// reply (Linux 6.12 drivers/infiniband/core/addr.c, rdma_resolve_ip and netevent_callback). A
// neighbor on a virtual link always replies before the kernel has registered. When the timeout
// expires, the kernel looks in its neighbor table again. If the hardware address is there, the
// kernel reports ADDR_RESOLVED, otherwise ADDR_ERROR. So a missed reply delays the result until the
// timeout expires. This is why the first timeout is short. The caller bounds the total time of all
// attempts. Holder only.
type addrResolver struct {
	src, dst netip.AddrPort
	look     time.Duration // timeout of the current attempt; 0 before the first attempt
}

// ask() starts an attempt. At the end of the attempt, id gets the event ADDR_RESOLVED or
// ADDR_ERROR.
func (a *addrResolver) ask(id verbs.CMID) error {
	a.look = max(firstLook, 2*a.look)
	return id.ResolveAddr(a.src, a.dst, a.look)
}

// isTimeout reports whether ev says that an attempt timed out.
func (a *addrResolver) isTimeout(ev *verbs.CMEvent) bool {
	return ev.Type == verbs.CMAddrError && ev.Status == -int(syscall.ETIMEDOUT)
}

// lookPatience is how long an address of the peer is looked for while it has others.
const lookPatience = 8 * firstLook

// slow reports whether the next address of the peer is to be tried, if there are others.
func (a *addrResolver) slow(others bool) bool { return others && a.look >= lookPatience }
