package soft_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a device with LinkPeers has the addresses of the machine, and queue pairs of two processes are connected by each
// of them. Another entry is refused, and so is a link-local address of IPv6.
func TestConnectionsByEachAddress(t *testing.T) {
	if !netns.Enter(t, "fd00::1") {
		return
	}
	left, right := openPeer(t, "left", "127.0.0.1", verbs.MTU4096), openPeer(t, "right", "127.0.0.1", verbs.MTU4096)
	n := must.Get(left.ctx.QueryPort(1))(t).GIDTblLen
	table, six := map[string]bool{}, 0
	for i := range n {
		e := must.Get(left.ctx.QueryGIDEntry(1, i))(t)
		if table[e.GID.String()] = true; e.GID.Addr().Is6() {
			six = i
		}
		ends := connectEnds(t, i, newLinkEnd(t, left, 8), newLinkEnd(t, right, 8))
		ends[0].write(t, ends[1])
		if at := ends[1].dest.GID; at != e.GID {
			t.Errorf("by entry %d the peer is at %v, want %v", i, at, e.GID)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "fd00::1"} {
		if !table[a] {
			t.Errorf("the table is %v, without %s", table, a)
		}
	}
	qp := newLinkEnd(t, left, 8).qp
	must.Do(t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	lid := must.Get(right.ctx.QueryPort(1))(t).LID
	for name, ah := range map[string]verbs.AHAttr{
		"from an entry behind the table": {DGID: right.gid, DLID: lid, SGIDIndex: uint8(n), Port: 1},
		"from IPv4 to IPv6":              {DGID: verbs.GIDFromAddr(netip.IPv6Loopback()), DLID: lid, Port: 1},
		"to a link-local address":        {DGID: verbs.GIDFromAddr(netip.MustParseAddr("fe80::1")), DLID: lid, SGIDIndex: uint8(six), Port: 1},
	} {
		err := qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPN: 2, AH: ah},
			verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN|verbs.QPMMaxDestRdAtomic|verbs.QPMMinRNRTimer)
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("a path %s: %v, want %v", name, err, verbs.ErrInvalid)
		}
		if _, err := newLinkEnd(t, left, 8).pd.CreateAH(&ah); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("an address handle %s: %v, want %v", name, err, verbs.ErrInvalid)
		}
	}
}
