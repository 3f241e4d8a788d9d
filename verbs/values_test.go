package verbs

import (
	"net/netip"
	"testing"
	"time"
)

func TestMTUBytes(t *testing.T) {
	for m, want := range map[MTU]uint32{
		0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048,
		MTU4096: 4096, MTU8192: 8192, MTU16384: 16384, MTU32768: 32768, 9: 0, 0x7f: 0, MTUJumbo: 1 << 31, 0x81: 0,
	} {
		if got := m.Bytes(); got != want {
			t.Errorf("MTU %d carries %d bytes, want %d", m, got, want)
		}
	}
}

// 4.096 µs × 2^code, and code 0 is no timeout (IBTA 9.7.6.1.3).
func TestAckTimeout(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond,
		31: 4096 * time.Nanosecond << 31, 32: 0, 33: 8192 * time.Nanosecond,
	} {
		if got := AckTimeout(code); got != want {
			t.Errorf("code %d is %v, want %v", code, got, want)
		}
	}
}

// Table 45: code 0 is the longest, the others rise from 10 µs to 491.52 ms.
func TestRNRTimeout(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond,
		14: 1280 * time.Microsecond, 31: 491520 * time.Microsecond, 33: 10 * time.Microsecond,
	} {
		if got := RNRTimeout(code); got != want {
			t.Errorf("code %d is %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRTimeout(code) <= RNRTimeout(code-1) {
			t.Errorf("code %d is not longer than code %d", code, code-1)
		}
		if RNRTimeout(code) >= RNRTimeout(0) {
			t.Errorf("code %d is not shorter than code 0", code)
		}
	}
}

// RoCE maps an IPv4 address to ::ffff:a.b.c.d, and back.
func TestGIDOfAnAddress(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.7")
	g := GIDFromAddr(v4)
	if want := (GID{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 7}); g != want {
		t.Errorf("GID of %v is % x", v4, g[:])
	}
	for _, a := range []netip.Addr{v4, netip.MustParseAddr("2001:db8::1")} {
		if g := GIDFromAddr(a); g.Addr() != a || g.String() != a.String() {
			t.Errorf("%v came back as %v, printed %v", a, g.Addr(), g)
		}
	}
}

// Remote write and remote atomic need local write (ibv_reg_mr(3)).
func TestAccessConsistent(t *testing.T) {
	all := AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessMWBind
	for a := AccessFlags(0); a <= all; a++ {
		want := a&AccessLocalWrite != 0 || a&(AccessRemoteWrite|AccessRemoteAtomic) == 0
		if a.Consistent() != want {
			t.Errorf("%v: Consistent is %v", a, a.Consistent())
		}
	}
}

func TestObjectCount(t *testing.T) {
	if !(ObjectCount{}).Zero() || (ObjectCount{MR: 1}).Zero() {
		t.Error("Zero is wrong")
	}
	const want = "{PD:0 TD:0 MR:2 MW:0 AH:0 CQ:0 CompChannel:0 QP:0 SRQ:0 XRCD:0 CMChannel:0 CMID:1}"
	if got := (ObjectCount{MR: 2, CMID: 1}).String(); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
}

// A reset batch keeps its memory and no object.
func TestTurnReset(t *testing.T) {
	turn := IOBatch{Sends: make([]SendGroup, 3, 8), Recvs: make([]RecvGroup, 2), Arms: make([]ArmGroup, 1), Polls: make([]PollGroup, 1)}
	turn.Sends[2].Accepted = 7
	turn.Polls[0].WC = make([]WC, 1)
	turn.Reset()
	if len(turn.Sends)+len(turn.Recvs)+len(turn.Arms)+len(turn.Polls) != 0 {
		t.Errorf("the turn is not empty: %+v", turn)
	}
	if cap(turn.Sends) != 8 || turn.Sends[:3][2].Accepted != 0 || turn.Polls[:1][0].WC != nil {
		t.Error("Reset lost memory or kept a record")
	}
	if n := testing.AllocsPerRun(100, func() {
		turn.Sends = append(turn.Sends, SendGroup{Count: 1})
		turn.Reset()
	}); n != 0 {
		t.Errorf("a reused turn allocates %v times", n)
	}
}
