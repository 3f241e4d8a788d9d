package soft_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// roceAt makes a provider of one device with a socket at addr.
func roceAt(t *testing.T, addr netip.Addr) *soft.Provider {
	t.Helper()
	return must.Get(soft.New(soft.Config{
		Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{{Name: "roce", Addr: addr, Link: soft.LinkRoCE}},
	}))(t)
}

// Rule: a second device at the address of another cannot be opened while that is open; the error names
// the process that has the port.
func TestSecondSocketOfAnAddress(t *testing.T) {
	first := openRoCE(t, "roce")
	p := roceAt(t, first.gid.Addr())
	_, err := p.Open("roce")
	if !errors.Is(err, syscall.EADDRINUSE) || !sys.Portable && !strings.Contains(err.Error(), "process ") {
		t.Fatalf("opening the second: %v, want %v and the process that has it", err, syscall.EADDRINUSE)
	}
	must.Do(t, first.ctx.Close())
	must.Do(t, must.Get(p.Open("roce"))(t).Close())
}

// Rule: a device at an address of another machine cannot be opened.
func TestSocketAtAnAddressOfAnotherMachine(t *testing.T) {
	elsewhere := netip.MustParseAddr("192.0.2.1") // TEST-NET-1, RFC 5737
	if _, err := roceAt(t, elsewhere).Open("roce"); !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "192.0.2.1 is no address of this machine") {
		t.Errorf("opening: %v", err)
	}
}

// Rule: the port of a device with a socket has the largest path MTU that its interface carries; the
// loopback interface carries all.
func TestSocketMTU(t *testing.T) {
	e := openRoCE(t, "roce")
	if a := must.Get(e.ctx.QueryPort(1))(t); a.ActiveMTU != verbs.MTU4096 {
		t.Errorf("the MTU is %d bytes, want 4096", a.ActiveMTU.Bytes())
	}
}

// Rule: configurations that no socket can have are refused.
func TestImpossibleSocketsAreRefused(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	for what, c := range map[string]soft.Config{
		"virtual time": {Fabric: fabric.New(fabric.Config{Virtual: true}), Devices: []soft.DeviceConfig{{Name: "a", Addr: addr, Link: soft.LinkRoCE}}},
		"jumbo MTU":    {Devices: []soft.DeviceConfig{{Name: "a", Addr: addr, Link: soft.LinkRoCE, MTU: verbs.MTUJumbo}}},
	} {
		if _, err := soft.New(c); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want %v", what, err, verbs.ErrInvalid)
		}
	}
}
