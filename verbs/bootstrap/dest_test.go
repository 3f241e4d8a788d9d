package bootstrap

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/verbs"
)

// example is the output of rdma-core's "%04x:%06x:%06x:%s" for exampleDest.
const example = "0000:000012:c21b2f:00000000000000000000ffff0a4d0002\x00"

var exampleDest = Dest{QPN: 0x12, PSN: 0xc21b2f, GID: verbs.GIDFromAddr(netip.MustParseAddr("10.77.0.2"))}

// Rule: the line equals that of the ibv_*_pingpong programs, byte for byte.
func TestLineIsThePrograms(t *testing.T) {
	d, err := Parse([]byte(example))
	if err != nil || d != exampleDest {
		t.Errorf("read %+v, %v; want %+v", d, err, exampleDest)
	}
	b, err := exampleDest.AppendText([]byte("x"))
	if err != nil || string(b) != "x"+example {
		t.Errorf("wrote %q, %v; want %q behind the x", b, err, example)
	}
	if d, err = Parse([]byte(strings.ToUpper(example))); err != nil || d != exampleDest {
		t.Errorf("in capitals: read %+v, %v; want %+v", d, err, exampleDest)
	}
	if s := exampleDest.String(); s+"\x00" != example {
		t.Errorf("says %q", s)
	}
}

// Rule: a written line reads back the same.
func TestLineSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Dest{LID: rapid.Uint16().Draw(t, "LID"), QPN: rapid.Uint32Range(0, bits24).Draw(t, "QPN"), PSN: rapid.Uint32Range(0, bits24).Draw(t, "PSN"),
			GID: verbs.GID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "GID"))}
		b, err := d.AppendText(nil)
		if err != nil || len(b) != TextLen {
			t.Fatalf("%+v became %q, %v", d, b, err)
		}
		if back, err := Parse(b); err != nil || back != d {
			t.Fatalf("%+v became %+v, %v", d, back, err)
		}
	})
}

// Rule: a malformed or hostile line is refused, and an address that does not fit is not written.
func TestLineThatIsNone(t *testing.T) {
	put := func(at int, s string) string { return example[:at] + s + example[at+len(s):] }
	for name, line := range map[string]string{
		"nothing": "", "one byte less": example[:TextLen-1], "one byte more": example + "\x00",
		"no colon": put(lidEnd, "0"), "a colon for a digit": put(qpnAt, ":"), "a sign": put(qpnAt, "-"), "a space": put(psnAt, " "),
		"0x": put(qpnAt, "0x"), "a letter behind f": put(psnAt, "g"), "no NUL": put(gidEnd, "0"), "a NUL inside": put(gidAt+3, "\x00"),
		"a letter in the GID": put(gidAt, "z"), "colons in other places": "00000:00012:c21b2f" + example[psnEnd:], "a format": put(0, "%n%n"),
	} {
		if d, err := Parse([]byte(line)); !errors.Is(err, ErrMalformed) || d != (Dest{}) {
			t.Errorf("%s: read %+v, %v; want ErrMalformed", name, d, err)
		}
	}
	for _, d := range []Dest{{QPN: bits24 + 1}, {PSN: bits24 + 1}} {
		if b, err := d.AppendText(nil); !errors.Is(err, ErrDest) || len(b) != 0 {
			t.Errorf("%+v became %q, %v; want ErrDest", d, b, err)
		}
	}
}

// Rule: an address that cannot have a queue pair is refused before it is used.
func TestPlaceThatIsNone(t *testing.T) {
	highest := exampleDest
	highest.LID = 0xffff
	for _, d := range []Dest{exampleDest, highest} {
		if err := d.Check(); err != nil || d.Unused() {
			t.Errorf("%v is refused: %v", d, err)
		}
	}
	if !(Dest{}).Unused() {
		t.Error("a line of zeros is taken for a queue pair")
	}
	addr := func(s string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	for name, change := range map[string]func(*Dest){
		"QP 0": func(d *Dest) { d.QPN = 0 }, "QP 1": func(d *Dest) { d.QPN = 1 }, "the multicast QP": func(d *Dest) { d.QPN = verbs.McastQPN },
		"more than 24 bits": func(d *Dest) { d.QPN = 1 << 24 }, "a PSN of more": func(d *Dest) { d.PSN = 1 << 24 },
		"no GID": func(d *Dest) { d.GID = verbs.GID{} }, "0.0.0.0": func(d *Dest) { d.GID = addr("0.0.0.0") },
		"everybody": func(d *Dest) { d.GID = addr("255.255.255.255") },
		"a group":   func(d *Dest) { d.GID = addr("224.0.0.1") }, "a group of IPv6": func(d *Dest) { d.GID = addr("ff02::1") },
	} {
		d := exampleDest
		if change(&d); !errors.Is(d.Check(), ErrDest) {
			t.Errorf("%s: %v, want ErrDest", name, d.Check())
		}
	}
}

// FuzzParse: no input makes the parser panic, and accepted input is written back the same except
// for upper case.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(strings.ToUpper(example)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Parse(b)
		if err != nil {
			return
		}
		back, err := d.AppendText(nil)
		if err != nil || !strings.EqualFold(string(back), string(b)) {
			t.Fatalf("%q was read as %+v, which is written %q, %v", b, d, back, err)
		}
	})
}
