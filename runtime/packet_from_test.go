package runtime

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// tableAddresses is a provider whose devices have the made-up GID table p.table. Only p.table[p.own] is
// a real entry: it has the device's address.
type tableAddresses struct {
	verbs.Provider
	table []verbs.GIDEntry
	own   int
}

func (p *tableAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	p.table[p.own], err = c.QueryGIDEntry(packetPort, 0)
	return tableContext{c, p}, err
}

type tableContext struct {
	verbs.Context
	p *tableAddresses
}

func (c tableContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a, err := c.Context.QueryPort(port)
	a.GIDTblLen = len(c.p.table)
	return a, err
}

func (c tableContext) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	e := c.p.table[index]
	e.Index, e.Port = index, port
	return e, nil
}

// notingDomain records the GID table index of the source address of each address handle. It makes the
// handle with index 0 instead, because the device does not know the made-up entries.
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

// wentTo rewrites the header of a received datagram as if the datagram had been sent to another
// address. The header is in grh, the 40 bytes before the data. It is an IPv6 header, or an IPv4 header
// in the last 20 bytes.
func wentTo(grh []byte, to netip.Addr) {
	const version, source = 20, 32 // offsets in grh: the start of the IPv4 header and its source address
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
	grh[0], grh[6] = 0x60, 17 // UDP
	copy(grh[8:], from[:])
	copy(grh[24:], to.AsSlice())
}

// Rule: the source address of a reply is the address to which the datagram was sent, in the GID table
// entry with the same RoCE version. If the datagram was sent to a multicast group, the source is the
// address that ChooseGID has found. If the device no longer has the source, PeerOf returns ErrNoGID.
func TestReplyLeavesFromWhereTheDatagramCameTo(t *testing.T) {
	notOnDevice(t, "its devices have made-up addresses")
	entry := func(kind verbs.GIDType, addr string) verbs.GIDEntry {
		return verbs.GIDEntry{Type: kind, GID: verbs.GIDFromAddr(netip.MustParseAddr(addr))}
	}
	onBeds(t, func(t *testing.T, d bed) {
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
			"":         2, // the datagram as it arrived
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
				t.Errorf("to %q: the reply leaves from %d, %v; want entry %d", addr, from, err, want)
				continue
			}
			b.sendBytes(t, back, []byte("back"))
			r := a.mustRecv(t)
			if string(r.Data) != "back" {
				t.Errorf("to %q: the reply says %q", addr, r.Data)
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
			t.Errorf("from an address that is lost: %v, want ErrNoGID", err)
		}
		if err := k.Release(); err != nil {
			t.Error(err)
		}
	})
}

// manyAddresses is a provider whose device has a longer GID table. The table begins with manyBefore
// link-local RoCEv1 entries, as on RoCE ports. The entry with the device's own address follows.
type manyAddresses struct{ verbs.Provider }

func (p manyAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return &manyContext{c}, err
}

type manyContext struct{ verbs.Context }

const manyBefore = 3

func (c *manyContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a, err := c.Context.QueryPort(port)
	a.GIDTblLen += manyBefore
	return a, err
}

func (c *manyContext) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	e, err := c.Context.QueryGIDEntry(port, max(0, index-manyBefore))
	if e.Index = index; index < manyBefore {
		e.GID, e.Type = verbs.GID{0: 0xfe, 1: 0x80, 15: 1}, verbs.GIDRoCEv1
	}
	return e, err
}

// Rule: the source address of replies is the address that peers know, even if this is not entry 0 of
// the port's GID table. (Soft-RoCE returns EINVAL for an address handle from a link-local entry to an
// IPv4 address. So if entry 0 was link-local and was used as the source, no reply was possible.)
func TestRepliesLeaveFromTheChosenAddress(t *testing.T) {
	p := mustListenPacket(t, mustOpen(t, Config{Provider: manyAddresses{soft.Default()}, Device: "soft0"}), Options{})
	if p.from != manyBefore {
		t.Errorf("replies leave from entry %d, want %d", p.from, manyBefore)
	}
}
