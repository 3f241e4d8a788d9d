package netns_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/sys/netns"
)

// Rule: in the namespace there are the loopback device and the addresses, and no others.
func TestEnter(t *testing.T) {
	if !netns.Enter(t, "fd00::1") {
		return
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, a := range all {
		got[netip.MustParsePrefix(a.String()).Addr().String()] = true
	}
	if len(got) != 3 || !got["127.0.0.1"] || !got["::1"] || !got["fd00::1"] {
		t.Fatalf("the addresses are %v", got)
	}
	c, err := net.ListenPacket("udp", "[fd00::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
