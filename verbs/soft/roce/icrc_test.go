package roce

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/verbs/soft/roce/icrctest"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// packetOf returns the IP packet of a datagram, as a router sees it.
func packetOf(src, dst netip.AddrPort, id uint16, ttl, tos byte, udp []byte) []byte {
	be := binary.BigEndian
	var b []byte
	if src.Addr().Is4() {
		b = append(b, 0x45, tos)
		b = be.AppendUint16(b, uint16(20+8+len(udp)))
		b = be.AppendUint16(b, id)
		b = append(b, 0x40, 0, ttl, 17, 0x12, 0x34)
	} else {
		b = append(b, 0x60|tos>>4, tos<<4|0x0a, 0xbc, 0xde)
		b = be.AppendUint16(b, uint16(8+len(udp)))
		b = append(b, 17, ttl)
	}
	b = append(b, src.Addr().AsSlice()...)
	b = append(b, dst.Addr().AsSlice()...)
	b = be.AppendUint16(b, src.Port())
	b = be.AppendUint16(b, dst.Port())
	b = be.AppendUint16(b, uint16(8+len(udp)))
	b = append(b, 0x56, 0x78) // checksum
	return append(b, udp...)
}

// drawCover draws the ends of a datagram.
func drawCover(t *rapid.T) Cover {
	port := rapid.Uint16()
	if rapid.Bool().Draw(t, "IPv6") {
		a := func(name string) netip.Addr {
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)))
		}
		return Cover{Src: netip.AddrPortFrom(a("src"), port.Draw(t, "sport")), Dst: netip.AddrPortFrom(a("dst"), port.Draw(t, "dport"))}
	}
	a := func(name string) netip.Addr {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
	}
	return Cover{Src: netip.AddrPortFrom(a("src"), port.Draw(t, "sport")), Dst: netip.AddrPortFrom(a("dst"), port.Draw(t, "dport"))}
}

// Rule: the ICRC is that of the specification, computed bit by bit over the IP packet, whatever the
// router's fields; Check accepts it, and any identification only with AnyID.
func TestICRCIsThatOfTheSpecification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCover(t)
		b := rapid.SliceOfN(rapid.Byte(), wire.BTHLen, 300).Draw(t, "datagram")
		id := rapid.Uint16().Draw(t, "id")
		if !rapid.Bool().Draw(t, "with id") || !c.Src.Addr().Is4() {
			id = 0
		}
		b = append(b, 0, 0, 0, 0)
		body := b[:len(b)-ICRCLen]
		want := icrctest.Sum(packetOf(c.Src, c.Dst, id, rapid.Byte().Draw(t, "ttl"), rapid.Byte().Draw(t, "tos"), b))
		if got := c.Sum(b); id == 0 && got != want {
			t.Fatalf("ICRC %08x, want %08x", got, want)
		}
		binary.LittleEndian.PutUint32(b[len(body):], want)
		if got := c.Check(b); got != (id == 0) {
			t.Fatalf("Check reports %v for identification %d", got, id)
		}
		c.AnyID = true
		if !c.Check(b) {
			t.Fatalf("Check with AnyID refuses identification %d", id)
		}
		if c.Src.Addr().Is4() {
			diff := want ^ c.Sum(b)
			if got, ok := idOf(diff, ipv4Len-ipv4Fragment+udpLen+len(body)); !ok || got != id {
				t.Fatalf("idOf returns %d, %v, want %d", got, ok, id)
			}
		}
	})
}

// Rule: a datagram with a changed bit is refused; with AnyID about one of 2^16 changes of many bits
// passes, none of one bit.
func TestICRCFindsAChangedBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCover(t)
		c.AnyID = true
		b := rapid.SliceOfN(rapid.Byte(), wire.BTHLen+ICRCLen, 300).Draw(t, "datagram")
		end := len(b) - ICRCLen
		binary.LittleEndian.PutUint32(b[end:], c.Sum(b))
		if !c.Check(b) {
			t.Fatal("Check refuses what Sum has made")
		}
		bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if got := c.Check(b); got != (bit/8 == bthVariant) {
			t.Fatalf("Check reports %v after a change of byte %d", got, bit/8)
		}
	})
}

// Rule: the zero Cover covers no address and no port.
func TestZeroCoverPassesNAT(t *testing.T) {
	b := make([]byte, wire.BTHLen+8)
	end := len(b) - ICRCLen
	var c Cover
	binary.LittleEndian.PutUint32(b[end:], c.Sum(b))
	if !c.Check(b) {
		t.Error("Check refuses what Sum has made")
	}
	b[wire.BTHLen] ^= 1
	if c.Check(b) {
		t.Error("Check accepts a changed payload")
	}
}

func BenchmarkICRC(b *testing.B) {
	c := Cover{Src: netip.MustParseAddrPort("10.0.0.1:49152"), Dst: netip.MustParseAddrPort("10.0.0.2:4791")}
	for _, n := range []int{8, 1024, 4096} {
		d := make([]byte, wire.BTHLen+wire.RETHLen+n+ICRCLen)
		b.Run(byteSize(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for range b.N {
				c.Sum(d)
			}
		})
	}
}

func byteSize(n int) string {
	if n < 1024 {
		return "8B"
	}
	return string(rune('0'+n/1024)) + "KiB"
}
