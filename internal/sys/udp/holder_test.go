//go:build linux && !portable

package udp_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/sys/udp"
)

// Rule: the holder of an address is named by its process, and a free address has none.
func TestHolderIsNamed(t *testing.T) {
	for name, a := range loopbacks {
		t.Run(name, func(t *testing.T) {
			s := listen(t, a)
			if got, want := udp.Holder(s.Local()), fmt.Sprintf("process %d (", os.Getpid()); !strings.HasPrefix(got, want) {
				t.Errorf("the holder of %v is %q, want %s...", s.Local(), got, want)
			}
			at := s.Local()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := udp.Holder(at); got != "" {
				t.Errorf("the holder of %v, which is free, is %q", at, got)
			}
			if got := udp.Holder(netip.AddrPort{}); got != "" {
				t.Errorf("the holder of no address is %q", got)
			}
		})
	}
}
