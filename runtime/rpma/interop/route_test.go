package interop

import (
	"net"
	"os/exec"
	"strings"
)

// table is a routing table that nothing else uses.
const table = "103"

// routed has programs reach our device from theirs, where both are in one name space: librpma binds no source
// address, and would else use our device for both ends. It skips the test on other devices than those of
// Soft-RoCE, whose network is the test machine's.
func (b *bench) routed() {
	b.Helper()
	if b.ours == b.theirs || b.ours.name == softDevice {
		return
	}
	if !strings.HasPrefix(b.ours.name, "rxe") {
		b.Skipf("librpma binds no source address, and the routes from %s to %s are not ours to change", b.theirs.addr, b.ours.addr)
	}
	ours, theirs := b.ours.addr.String(), b.theirs.addr.String()
	route := []string{ours, "dev", b.interfaceOf(theirs), "src", theirs, "table", table}
	rule := []string{"from", "0.0.0.0/32", "to", ours, "lookup", table, "pref", "9"} // before those of the machine
	for what, args := range map[string][]string{"route": route, "rule": rule} {
		b.ip(append([]string{what, "add"}, args...)...)
		b.Cleanup(func() { b.ip(append([]string{what, "del"}, args...)...) })
	}
}

func (b *bench) ip(args ...string) {
	b.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		b.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// interfaceOf returns the name of the interface that has an address.
func (b *bench) interfaceOf(addr string) string {
	b.Helper()
	all, err := net.Interfaces()
	b.must(err)
	for _, i := range all {
		has, err := i.Addrs()
		b.must(err)
		for _, a := range has {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == addr {
				return i.Name
			}
		}
	}
	b.Fatalf("no interface has the address %s", addr)
	return ""
}
