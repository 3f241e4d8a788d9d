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

// Rule: the subtests that run in the namespace, and their results, are those of the test.
func TestSubtestsAreReported(t *testing.T) {
	seen := map[string]bool{}
	if netns.Enter(t) {
		t.Run("passed", func(t *testing.T) { t.Log("a line") })
		t.Run("skipped", func(t *testing.T) { t.Skip("the reason") })
		return
	}
	// t.Run gives a name that was used before a number.
	for _, name := range []string{"passed", "skipped"} {
		t.Run(name, func(t *testing.T) { seen[t.Name()] = true })
		if !seen["TestSubtestsAreReported/"+name+"#01"] {
			t.Errorf("the test has no subtest %q", name)
		}
	}
}
