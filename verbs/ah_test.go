package verbs

import (
	"errors"
	"net/netip"
	"testing"
)

// ipv4GRH returns the 40 bytes of a datagram from 10.1.2.3 to 10.0.0.1, with the checksum
// computed by hand as in RFC 1071.
func ipv4GRH() []byte {
	b := make([]byte, GRHLen)
	h := b[grhIPv4At:]
	copy(h, []byte{0x45, 0x0b, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 2, 3, 10, 0, 0, 1})
	c := checksum(h)
	h[10], h[11] = byte(c>>8), byte(c)
	return b
}

// Rule: the reply goes to the source of either header, with its traffic class except for the network's mark of
// congestion; the checksum separates an IPv4 header from random bytes.
func TestInitAHFromGRH(t *testing.T) {
	a, err := InitAHFromGRH(ipv4GRH(), 1, 3)
	if err != nil || a.DGID.Addr() != netip.MustParseAddr("10.1.2.3") || a.Port != 1 || a.SGIDIndex != 3 || a.TrafficClass != 8 {
		t.Errorf("IPv4: %+v, %v", a, err)
	}
	six := make([]byte, GRHLen)
	six[0], six[1], six[3] = 0x61, 0x3f, 9
	copy(six[grhIPv6Source:], netip.MustParseAddr("fe80::1:2").AsSlice())
	a, err = InitAHFromGRH(six, 1, 0)
	if err != nil || a.DGID.Addr() != netip.MustParseAddr("fe80::1:2") || a.TrafficClass != 0x10 || a.FlowLabel != 0xf<<16|9 {
		t.Errorf("IPv6: %+v, %v", a, err)
	}
}

// Rule: a datagram that Soft-RoCE passed within one device can be replied to, although its header
// checksum is not filled in.
func TestInitAHFromGRHWithinOneDevice(t *testing.T) {
	grh := ipv4GRH()
	clear(grh[grhIPv4Sum:][:2])
	if a, err := InitAHFromGRH(grh, 1, 1); err != nil || a.DGID.Addr() != netip.MustParseAddr("10.1.2.3") {
		t.Errorf("%+v, %v", a, err)
	}
	grh[3] = 1 // the first 20 bytes are not zeros: not an unsent header
	if a, err := InitAHFromGRH(grh, 1, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("%+v, %v; want %v", a, err, ErrInvalid)
	}
}

// Rule: malformed headers are refused.
func TestInitAHFromGRHRefuses(t *testing.T) {
	damaged := ipv4GRH()
	damaged[grhIPv4Source]++
	for name, grh := range map[string][]byte{
		"nothing": nil, "39 bytes": make([]byte, GRHLen-1), "zeros": make([]byte, GRHLen), "a wrong checksum": damaged,
	} {
		if a, err := InitAHFromGRH(grh, 1, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, %v; want %v", name, a, err, ErrInvalid)
		}
	}
}

// Rule: a reply goes to one port; a group, broadcast or unspecified source is refused, in either
// header.
func TestInitAHFromGRHOnlyOnePort(t *testing.T) {
	for _, from := range []string{
		"239.1.2.3", "255.255.255.255", "0.0.0.0", "ff02::1", "::", "::ffff:239.1.2.3", "::ffff:255.255.255.255", "::ffff:0.0.0.0",
	} {
		addr, grh := netip.MustParseAddr(from), ipv4GRH()
		if h := grh[grhIPv4At:]; addr.Is4() {
			copy(h[12:], addr.AsSlice())
			h[10], h[11] = 0, 0
			c := checksum(h)
			h[10], h[11] = byte(c>>8), byte(c)
		} else {
			clear(grh)
			grh[0] = 0x60
			copy(grh[grhIPv6Source:], addr.AsSlice())
		}
		if a, err := InitAHFromGRH(grh, 1, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("from %s: %+v, %v; want %v", from, a, err, ErrInvalid)
		}
	}
}

// Rule: the destination of a datagram and its protocol are read from either header; a malformed
// header is refused.
func TestGRHDest(t *testing.T) {
	if g, v2, err := GRHDest(ipv4GRH()); err != nil || g.Addr() != netip.MustParseAddr("10.0.0.1") || !v2 {
		t.Errorf("IPv4: %v, %v, %v", g, v2, err)
	}
	six := make([]byte, GRHLen)
	six[0] = 0x60
	copy(six[grhIPv6Dest:], netip.MustParseAddr("fe80::7").AsSlice())
	for next, want := range map[byte]bool{17: true, grhNextIBA: false} {
		six[grhIPv6Next] = next
		if g, v2, err := GRHDest(six); err != nil || g.Addr() != netip.MustParseAddr("fe80::7") || v2 != want {
			t.Errorf("IPv6, next header %d: %v, %v, %v", next, g, v2, err)
		}
	}
	for _, grh := range [][]byte{nil, six[:GRHLen-1], make([]byte, GRHLen)} {
		if g, _, err := GRHDest(grh); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v, %v; want %v", len(grh), g, err, ErrInvalid)
		}
	}
}

func FuzzInitAHFromGRH(f *testing.F) {
	f.Add(ipv4GRH())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := InitAHFromGRH(b, 1, 0)
		if err == nil && (a.Port != 1 || !a.DGID.Unicast()) {
			t.Errorf("%+v", a)
		}
		if _, _, derr := GRHDest(b); err == nil && derr != nil {
			t.Errorf("it came from %v, but went nowhere: %v", a.DGID, derr)
		}
	})
}

// Rule: the reply to a datagram without a header goes to the LID of its sender, if that is a port's.
func TestInitAHFromLID(t *testing.T) {
	want := AHAttr{DLID: 0x21, SL: 3, SrcPathBits: 1, Port: 2}
	if a, err := InitAHFromLID(0x21, 3, 1, 2); err != nil || a != want {
		t.Errorf("%+v, %v; want %+v", a, err, want)
	}
	for _, lid := range []uint16{0, 0xc000, 0xffff} { // none, a multicast group, the permissive LID
		if a, err := InitAHFromLID(lid, 0, 0, 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("LID %#x: %+v, %v; want %v", lid, a, err, ErrInvalid)
		}
	}
}
