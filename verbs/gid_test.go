package verbs_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// gidPort is a context with one port that has a table of addresses. All its other methods are nil
// pointers.
type gidPort struct {
	verbs.Context
	link  verbs.LinkLayer
	table []verbs.GIDEntry
	fail  error // the error for every reading, if set
	own   []netip.Addr
	any   bool // the device has all addresses of the machine
	asked int  // readings of the table
}

func (*gidPort) String() string { return "context of fake0" }

func (p *gidPort) Device() verbs.DeviceInfo { return verbs.DeviceInfo{Addr: p.own, AnyAddr: p.any} }

func (p *gidPort) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{LinkLayer: p.link, GIDTblLen: len(p.table)}, nil
}

func (p *gidPort) QueryGID(_ uint8, i int) (verbs.GID, error) { return p.table[i].GID, p.fail }

// QueryGIDTable returns the table as port 1's, and behind it an entry of another port.
func (p *gidPort) QueryGIDTable() (read []verbs.GIDEntry, err error) {
	p.asked++
	for i, e := range p.table {
		if e.GID != (verbs.GID{}) {
			e.Index, e.Port = i, 1
			read = append(read, e)
		}
	}
	other := gid(verbs.GIDRoCEv2, "10.0.0.3")
	other.Port = 2
	return append(read, other), p.fail
}

func gid(t verbs.GIDType, addr string) verbs.GIDEntry {
	return verbs.GIDEntry{Type: t, GID: verbs.GIDFromAddr(netip.MustParseAddr(addr))}
}

// The entry chosen is RoCEv2 before RoCEv1, IPv4 before global IPv6 before link-local, and the
// first of equals. The device names no addresses.
func TestChooseGID(t *testing.T) {
	const v1, v2, ib = verbs.GIDRoCEv1, verbs.GIDRoCEv2, verbs.GIDInfiniBand
	hole := verbs.GIDEntry{}
	for name, c := range map[string]struct {
		table []verbs.GIDEntry
		want  int // index; -1: none
	}{
		"a ConnectX":               {[]verbs.GIDEntry{gid(v1, "fe80::1"), gid(v2, "fe80::1"), gid(v1, "10.0.0.1"), gid(v2, "10.0.0.1")}, 3},
		"Soft-RoCE":                {[]verbs.GIDEntry{gid(v2, "fe80::1"), gid(v2, "10.77.0.1")}, 1},
		"global before link-local": {[]verbs.GIDEntry{gid(v2, "fe80::1"), gid(v2, "2001:db8::1")}, 1},
		"IPv4 before IPv6":         {[]verbs.GIDEntry{gid(v2, "2001:db8::1"), gid(v2, "10.0.0.1")}, 1},
		"v2 before any v1":         {[]verbs.GIDEntry{gid(v1, "10.0.0.1"), gid(v2, "fe80::1")}, 1},
		"only v1":                  {[]verbs.GIDEntry{gid(v1, "fe80::1"), gid(v1, "10.0.0.1")}, 1},
		"iWARP":                    {[]verbs.GIDEntry{gid(ib, "200:0:0:1::")}, 0},
		"the first of equals":      {[]verbs.GIDEntry{gid(v2, "10.0.0.1"), gid(v2, "10.0.0.2")}, 0},
		"holes":                    {[]verbs.GIDEntry{hole, hole, gid(v2, "10.0.0.1"), hole}, 2},
		"0.0.0.0":                  {[]verbs.GIDEntry{gid(v2, "0.0.0.0"), gid(v1, "fe80::1")}, 1},
		"a multicast address":      {[]verbs.GIDEntry{gid(v2, "ff02::1"), gid(v1, "fe80::1")}, 1},
		"a type to come":           {[]verbs.GIDEntry{gid(9, "10.0.0.1"), gid(v1, "fe80::1")}, 1},
		"none":                     {[]verbs.GIDEntry{hole, hole}, -1},
		"an empty table":           {nil, -1},
	} {
		e, err := verbs.ChooseGID(&gidPort{link: verbs.LinkEthernet, table: c.table}, 1)
		switch {
		case c.want < 0:
			if !errors.Is(err, verbs.ErrNoGID) {
				t.Errorf("%s: chose %+v, %v; want ErrNoGID", name, e, err)
			}
		case err != nil || e.Index != c.want || e.Port != 1 || e.GID != c.table[c.want].GID:
			t.Errorf("%s: chose %+v, %v; want entry %d", name, e, err, c.want)
		}
	}
}

// A device with all addresses of the machine has its own one chosen, but not before a better protocol. The addresses of
// another device were found when it was opened, and do not matter.
func TestChooseGIDPrefersTheDevicesOwn(t *testing.T) {
	table := []verbs.GIDEntry{gid(verbs.GIDRoCEv1, "fd00::1"), gid(verbs.GIDRoCEv2, "10.0.0.1"), gid(verbs.GIDRoCEv2, "fd00::1")}
	for any, want := range map[bool]int{true: 2, false: 1} {
		e, err := verbs.ChooseGID(&gidPort{link: verbs.LinkEthernet, table: table, own: []netip.Addr{netip.MustParseAddr("fd00::1")}, any: any}, 1)
		if err != nil || e.Index != want {
			t.Errorf("with all addresses %t: chose %+v, %v; want entry %d", any, e, err, want)
		}
	}
}

// On InfiniBand entry 0 is chosen, whatever follows, and its type is not read.
func TestChooseGIDOnInfiniBand(t *testing.T) {
	for _, link := range []verbs.LinkLayer{verbs.LinkInfiniBand, verbs.LinkUnspecified} {
		p := &gidPort{link: link, table: []verbs.GIDEntry{gid(verbs.GIDInfiniBand, "fe80::2"), gid(verbs.GIDRoCEv2, "10.0.0.1")}}
		if e, err := verbs.ChooseGID(p, 2); err != nil || e.Index != 0 || e.Port != 2 || e.GID != p.table[0].GID || p.asked != 0 {
			t.Errorf("link layer %d: chose %+v, %v after %d readings; want entry 0 after none", link, e, err, p.asked)
		}
	}
	if _, err := verbs.ChooseGID(&gidPort{table: make([]verbs.GIDEntry, 1)}, 1); !errors.Is(err, verbs.ErrNoGID) {
		t.Errorf("an empty entry 0: %v, want ErrNoGID", err)
	}
}

// A path names an entry by 8 bits, so entries after 255 are not chosen, however long a table a
// device claims to have. A device that fails is not reported as one without addresses.
func TestChooseGIDIsBounded(t *testing.T) {
	p := &gidPort{link: verbs.LinkEthernet, table: make([]verbs.GIDEntry, 4096)}
	p.table[256] = gid(verbs.GIDRoCEv2, "10.0.0.1")
	if e, err := verbs.ChooseGID(p, 1); !errors.Is(err, verbs.ErrNoGID) {
		t.Errorf("chose %+v, %v; want ErrNoGID", e, err)
	}
	p.table[255] = gid(verbs.GIDRoCEv1, "10.0.0.2")
	if e, err := verbs.ChooseGID(p, 1); err != nil || e.Index != 255 {
		t.Errorf("chose %+v, %v; want entry 255, the last that a path can name", e, err)
	}
	p.fail = &verbs.OpError{Errno: syscall.EIO, Err: verbs.ErrDeviceRemoved}
	if _, err := verbs.ChooseGID(p, 1); !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("of a removed device: %v, want ErrDeviceRemoved", err)
	}
}

// The software RNIC's only address is the one it was made with.
func TestChooseGIDOfSoft(t *testing.T) {
	p := must.Get(soft.New(soft.Config{}))(t)
	devs, err := p.Devices()
	if err != nil || len(devs) == 0 {
		t.Fatalf("devices: %v, %v", devs, err)
	}
	ctx := must.Get(p.Open(devs[0].Name))(t)
	defer ctx.Close()
	if e, err := verbs.ChooseGID(ctx, 1); err != nil || e.GID.Addr() != devs[0].Addr[0] || e.Type != verbs.GIDRoCEv2 {
		t.Errorf("chose %+v, %v; want %v", e, err, devs[0].Addr[0])
	}
	if e, err := verbs.ChooseGID(ctx, 9); err == nil {
		t.Errorf("chose %+v of a port that is not there", e)
	}
}

// Rule: FindGID finds an address by its protocol too, the first of several, among the entries
// that a path can name; a missing one is ErrNoGID.
func TestFindGID(t *testing.T) {
	const v1, v2 = verbs.GIDRoCEv1, verbs.GIDRoCEv2
	table := []verbs.GIDEntry{gid(v1, "fe80::1"), gid(v2, "fe80::1"), {}, gid(v1, "10.0.0.1"), gid(v2, "10.0.0.1"), gid(v2, "10.0.0.2"), gid(v2, "10.0.0.1")}
	long := make([]verbs.GIDEntry, 300)
	long[255], long[256] = gid(v2, "10.0.0.1"), gid(v2, "10.0.0.2")
	for name, c := range map[string]struct {
		table []verbs.GIDEntry
		addr  string
		v2    bool
		want  int // index; -1: none
	}{
		"RoCEv2": {table, "10.0.0.1", true, 4}, "RoCEv1": {table, "10.0.0.1", false, 3}, "IPv6": {table, "fe80::1", true, 1},
		"another": {table, "10.0.0.2", true, 5}, "not by RoCEv1": {table, "10.0.0.2", false, -1}, "another port's": {table, "10.0.0.3", true, -1},
		"the last": {long, "10.0.0.1", true, 255}, "behind the last": {long, "10.0.0.2", true, -1},
		"InfiniBand": {[]verbs.GIDEntry{gid(verbs.GIDInfiniBand, "fe80::1")}, "fe80::1", false, 0},
	} {
		e, err := verbs.FindGID(&gidPort{link: verbs.LinkEthernet, table: c.table}, 1, verbs.GIDFromAddr(netip.MustParseAddr(c.addr)), c.v2)
		switch {
		case c.want < 0:
			if !errors.Is(err, verbs.ErrNoGID) {
				t.Errorf("%s: found %+v, %v; want ErrNoGID", name, e, err)
			}
		case err != nil || e.Index != c.want:
			t.Errorf("%s: found %+v, %v; want entry %d", name, e, err, c.want)
		}
	}
	boom := &verbs.OpError{Errno: syscall.EIO}
	if _, err := verbs.FindGID(&gidPort{table: table, fail: boom}, 1, table[0].GID, true); !errors.Is(err, syscall.EIO) {
		t.Errorf("a table that cannot be read: %v, want EIO", err)
	}
}

// twoPorts is a context with two ports of Ethernet.
type twoPorts struct {
	gidPort
	state [2]verbs.PortState
	bare  [2]bool // the port has no address
}

func (p *twoPorts) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPorts: 2}, nil
}

func (p *twoPorts) QueryPort(port uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{State: p.state[port-1], LinkLayer: verbs.LinkEthernet}, nil
}

func (p *twoPorts) QueryGIDTable() (read []verbs.GIDEntry, err error) {
	for i, bare := range p.bare {
		if e := gid(verbs.GIDRoCEv2, "10.0.0.1"); !bare {
			e.Port = uint8(i + 1)
			read = append(read, e)
		}
	}
	return read, nil
}

// The port chosen is the first that is active and has an address, else the first active one, else port 1.
func TestChoosePort(t *testing.T) {
	const down, up = verbs.PortDown, verbs.PortActive
	for _, c := range []struct {
		state [2]verbs.PortState
		bare  [2]bool
		want  uint8
	}{
		{[2]verbs.PortState{up, up}, [2]bool{}, 1},
		{[2]verbs.PortState{down, up}, [2]bool{}, 2},
		{[2]verbs.PortState{up, up}, [2]bool{true, false}, 2},
		{[2]verbs.PortState{down, up}, [2]bool{false, true}, 2},
		{[2]verbs.PortState{down, down}, [2]bool{}, 1},
	} {
		if port, err := verbs.ChoosePort(&twoPorts{state: c.state, bare: c.bare}); err != nil || port != c.want {
			t.Errorf("of ports in the states %v, without address %v: chose %d, %v; want %d", c.state, c.bare, port, err, c.want)
		}
	}
}
