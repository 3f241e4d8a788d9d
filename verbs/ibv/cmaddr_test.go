//go:build linux && cgo && !portable

package ibv

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (infiniband/ib.h, struct sockaddr_ib): an address of InfiniBand has its fields in network order behind the family,
// and is read back as it was. Zero is none.
func TestAddressesOfInfiniBandForC(t *testing.T) {
	a := verbs.IBAddr{PKey: 0x8001, FlowInfo: 0x02030405, GID: verbs.GIDFromAddr(netip.MustParseAddr("fe80::a0b:c0d")),
		SID: 0x1112131415161718, SIDMask: 0x2122232425262728, ScopeID: 0x3132333435363738}
	c := sockaddrIB(a)
	const want = "1b00" + "8001" + "02030405" + "fe8000000000000000000000" + "0a0b0c0d" + "1112131415161718" + "2122232425262728" + "3837363534333231"
	if got := hex.EncodeToString(unsafe.Slice((*byte)(unsafe.Pointer(&c)), len(want)/2)); got != want {
		t.Errorf("%+v is\n%s, want\n%s", a, got, want)
	}
	if got := addrIB(&c); got != a {
		t.Errorf("%+v is read back as %+v", a, got)
	}
	if none := sockaddrIB(verbs.IBAddr{}); none.ss_family != 0 || addrIB(&none) != (verbs.IBAddr{}) {
		t.Errorf("no address has family %d", none.ss_family)
	}
}
