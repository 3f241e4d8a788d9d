package soft

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// maxGIDs is the largest number of entries that an address table has: AHAttr.SGIDIndex has 8 bits.
const maxGIDs = 1 << 8

// gidTable is the address table of a port. Entry 0 is the device's own address, which it has on the
// fabric. With LinkPeers the addresses of the machine follow, because the sockets of such a device send from each
// and receive at each. An address keeps its entry while the machine has it. Then the entry is empty, and is
// the next new address's: as in the kernel (drivers/infiniband/core/cache.c).
type gidTable struct {
	mu sync.Mutex // held from looking for the addresses until entries is replaced
	// entries is written under mu, a new slice each time. Any goroutine and the engine read it.
	entries atomic.Pointer[[]verbs.GID]
}

func (t *gidTable) init(own verbs.GID) { t.entries.Store(&[]verbs.GID{own}) }

// at returns an entry, the zero GID if it is empty or beyond the table.
func (t *gidTable) at(i int) verbs.GID {
	if e := *t.entries.Load(); i >= 0 && i < len(e) {
		return e[i]
	}
	return verbs.GID{}
}

// index returns the entry of an address, 0 if it has none, and for the zero GID.
func (t *gidTable) index(g verbs.GID) uint8 {
	if g == (verbs.GID{}) {
		return 0
	}
	// One look: the address may lose its entry at any time.
	return uint8(max(slices.Index(*t.entries.Load(), g), 0))
}

// has reports whether an address has an entry. The zero GID, which empty entries have, is none.
func (t *gidTable) has(g verbs.GID) bool {
	return g != verbs.GID{} && slices.Contains(*t.entries.Load(), g)
}

func (t *gidTable) len() int { return len(*t.entries.Load()) }

// set replaces the addresses behind entry 0. t.mu is held.
func (t *gidTable) set(have []verbs.GID) {
	e := slices.Clone(*t.entries.Load())
	for i, g := range e[1:] {
		if !slices.Contains(have, g) {
			e[1+i] = verbs.GID{}
		}
	}
	for _, g := range have {
		if slices.Contains(e, g) {
			continue
		}
		if i := slices.Index(e, verbs.GID{}); i > 0 {
			e[i] = g
		} else if len(e) < maxGIDs {
			e = append(e, g)
		}
	}
	t.entries.Store(&e)
}

// findGIDs brings the address table up to date. It makes system calls with LinkPeers. If they fail, the table
// stays as it is.
func (d *device) findGIDs() {
	if d.cfg.Link != LinkPeers {
		return
	}
	d.gids.mu.Lock()
	defer d.gids.mu.Unlock()
	if have, err := net.InterfaceAddrs(); err == nil {
		d.gids.set(gidsOf(have))
	}
}

// gidsOf returns the GIDs of addresses of a machine. A link-local address has none: a GID cannot name its interface.
func gidsOf(have []net.Addr) (gids []verbs.GID) {
	for _, a := range have {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() {
			gids = append(gids, verbs.GIDFromAddr(p.Addr()))
		}
	}
	return gids
}
