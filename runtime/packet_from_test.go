package runtime

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// tableAddresses is a provider for tests. Its devices report a GID table that the test has made up. One
// entry is real: Open copies it from the device.
type tableAddresses struct {
	verbs.Provider
	table []verbs.GIDEntry // the reported GID table
	own   int              // the index of the real entry; set by the test
}

func (p *tableAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	p.table[p.own], err = c.QueryGIDEntry(1, 0)
	return tableContext{c, p}, err
}

type tableContext struct {
	verbs.Context
	p *tableAddresses
}

func (c tableContext) QueryGIDTable() ([]verbs.GIDEntry, error) {
	table := slices.Clone(c.p.table)
	for i := range table {
		table[i].Index, table[i].Port = i, 1
	}
	return table, nil
}

// notingDomain is a PD whose method CreateAH appends the index of the source GID to *from. CreateAH then
// creates the address handle with index 0, because the device does not have the made-up entries.
type notingDomain struct {
	verbs.PD
	from *[]uint8
}

func (d notingDomain) CreateAH(a *verbs.AHAttr) (verbs.AH, error) {
	*d.from = append(*d.from, a.SGIDIndex)
	real := *a
	real.SGIDIndex = 0
	return d.PD.CreateAH(&real)
}

// wentTo(grh, to) sets the destination address in the IP header of a received datagram. The slice grh
// begins with the 40 bytes before the data. Before the call, the last 20 of these bytes are an IPv4
// header. If the new address is an IPv6 address, wentTo replaces all 40 bytes by an IPv6 header.
func wentTo(grh []byte, to netip.Addr) {
	const version, source = 20, 32 // offsets in grh: the IPv4 header, and the source address in it
	if to.Is4() {
		copy(grh[36:], to.AsSlice())
		grh[30], grh[31] = 0, 0
		var sum uint32
		for i := version; i < verbs.GRHLen; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(grh[i:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(grh[30:], ^uint16(sum+sum>>16))
		return
	}
	from := netip.AddrFrom4([4]byte(grh[source:])).As16()
	clear(grh[:verbs.GRHLen])
	grh[0], grh[6] = 0x60, 17 // version 6; next header UDP
	copy(grh[8:], from[:])
	copy(grh[24:], to.AsSlice())
}

// Rule: a reply leaves from the address to which the datagram was sent. The source of the reply is the GID
// table entry with this address and with the RoCE version of the datagram. If the datagram was sent to a
// multicast group, the source is the entry that ChooseGID has found. If the GID table has no entry with
// the address, PeerOf returns ErrNoGID.
func TestReplyLeavesFromWhereTheDatagramCameTo(t *testing.T) {
	notOnDevice(t, "the devices of the test have made-up addresses")
	entry := func(kind verbs.GIDType, addr string) verbs.GIDEntry {
		return verbs.GIDEntry{Type: kind, GID: verbs.GIDFromAddr(netip.MustParseAddr(addr))}
	}
	onPlainBeds(t, func(t *testing.T, d bed) {
		p := &tableAddresses{own: 2, table: []verbs.GIDEntry{
			entry(verbs.GIDRoCEv2, "fe80::9"), entry(verbs.GIDRoCEv1, "10.9.8.7"), {}, entry(verbs.GIDRoCEv2, "10.9.8.7"),
		}}
		near := d.open(t, Config{}, 0)
		p.Provider = near.provider
		far := d.open(t, Config{Provider: p}, 1)
		a, b := mustListenPacket(t, near, Options{}), mustListenPacket(t, far, Options{})
		var from []uint8
		pd := far.pd
		far.pd = notingDomain{pd, &from}
		defer func() { far.pd = pd }()
		to := mustResolve(t, a, b.Addr().String())
		for addr, want := range map[string]uint8{
			"":         2, // the header is not changed: the datagram was sent to the device's own address
			"10.9.8.7": 3, "fe80::9": 0, "239.1.2.3": 2, "ff02::1": 2,
		} {
			a.sendBytes(t, to, []byte("x"))
			k := b.mustRecv(t)
			if addr != "" {
				wentTo(k.slot.buf.Bytes(), netip.MustParseAddr(addr))
			}
			from = nil
			back, err := b.PeerOf(k)
			if err != nil || len(from) != 1 || from[0] != want {
				t.Errorf("a datagram sent to %q: PeerOf made address handles with the source entries %d, error %v; want entry %d",
					addr, from, err, want)
				continue
			}
			b.sendBytes(t, back, []byte("back"))
			r := a.mustRecv(t)
			if string(r.Data) != "back" {
				t.Errorf("a datagram sent to %q: the reply is %q, want %q", addr, r.Data, "back")
			}
			for _, k := range []Packet{k, r} {
				if err := k.Release(); err != nil {
					t.Error(err)
				}
			}
		}
		a.sendBytes(t, to, []byte("x"))
		k := b.mustRecv(t)
		wentTo(k.slot.buf.Bytes(), netip.MustParseAddr("10.9.9.9"))
		if _, err := b.PeerOf(k); !errors.Is(err, verbs.ErrNoGID) {
			t.Errorf("PeerOf of a datagram to an address that the device does not have returned %v, want ErrNoGID", err)
		}
		if err := k.Release(); err != nil {
			t.Error(err)
		}
	})
}

// manyAddresses is a provider that puts manyBefore link-local RoCEv1 entries in front of a device's GID
// table. RoCE ports have such entries. So the entry with the device's own address has the index
// manyBefore.
type manyAddresses struct{ verbs.Provider }

func (p manyAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return &manyContext{c}, err
}

type manyContext struct{ verbs.Context }

const manyBefore = 3

func (c *manyContext) QueryGIDTable() ([]verbs.GIDEntry, error) {
	table := []verbs.GIDEntry{}
	for i := range manyBefore {
		table = append(table, verbs.GIDEntry{GID: verbs.GID{0: 0xfe, 1: 0x80, 15: 1}, Index: i, Port: 1, Type: verbs.GIDRoCEv1})
	}
	own, err := c.Context.QueryGIDTable()
	for _, e := range own {
		e.Index += manyBefore
		table = append(table, e)
	}
	return table, err
}

// Rule: if the first entries of the port's GID table are link-local, the entry with the device's own address
// is the source of replies to multicast datagrams. Soft-RoCE could not send a
// reply from a link-local entry: if the source of an address handle is link-local and the destination is
// an IPv4 address, Soft-RoCE returns EINVAL.
func TestRepliesLeaveFromTheChosenAddress(t *testing.T) {
	p := mustListenPacket(t, mustOpen(t, Config{Provider: manyAddresses{soft.Default()}, Device: "soft0"}), Options{})
	grh := make([]byte, verbs.GRHLen)
	grh[20] = 0x45 // an IPv4 header
	wentTo(grh, netip.MustParseAddr("239.1.2.3"))
	if from, err := p.replyFrom(grh); err != nil || from != manyBefore {
		t.Errorf("the source of a reply is entry %d of the GID table, error %v; want %d", from, err, manyBefore)
	}
}
