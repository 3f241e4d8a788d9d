package cm

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/verbena-rdma/verbena/internal/must"
)

// wireFields is the position of every field, copied by hand from the kernel's
// drivers/infiniband/core/cm_msgs.h: byte offset from the start of the datagram, offset in bits
// from the top of that byte, width in bits.
var wireFields = map[string]map[string][3]int{
	"REQ": {
		"TID": {8, 0, 64}, "Options": {20, 0, 32}, "LocalID": {24, 0, 32}, "Vendor": {29, 0, 24},
		"ServiceID": {32, 0, 64}, "CAGUID": {40, 0, 64},
		"QKey": {52, 0, 32}, "QPN": {56, 0, 24}, "ResponderResources": {59, 0, 8},
		"LocalEECN": {60, 0, 24}, "InitiatorDepth": {63, 0, 8}, "RemoteEECN": {64, 0, 24},
		"RemoteTimeout": {67, 0, 5}, "Transport": {67, 5, 2}, "FlowControl": {67, 7, 1},
		"PSN": {68, 0, 24}, "LocalTimeout": {71, 0, 5}, "RetryCount": {71, 5, 3},
		"PKey": {72, 0, 16}, "PathMTU": {74, 0, 4}, "RDCExists": {74, 4, 1}, "RNRRetry": {74, 5, 3},
		"MaxCMRetries": {75, 0, 4}, "SRQ": {75, 4, 1}, "ExtTransport": {75, 5, 3},
		"Private":          {164, 0, 92 * 8},
		"Primary.LocalLID": {76, 0, 16}, "Primary.RemoteLID": {78, 0, 16},
		"Primary.LocalGID": {80, 0, 128}, "Primary.RemoteGID": {96, 0, 128},
		"Primary.FlowLabel": {112, 0, 20}, "Primary.Rate": {115, 2, 6},
		"Primary.TrafficClass": {116, 0, 8}, "Primary.HopLimit": {117, 0, 8},
		"Primary.SL": {118, 0, 4}, "Primary.SubnetLocal": {118, 4, 1}, "Primary.AckTimeout": {119, 0, 5},
		"Alternate.LocalLID": {120, 0, 16}, "Alternate.RemoteLID": {122, 0, 16},
		"Alternate.LocalGID": {124, 0, 128}, "Alternate.RemoteGID": {140, 0, 128},
		"Alternate.FlowLabel": {156, 0, 20}, "Alternate.Rate": {159, 2, 6},
		"Alternate.TrafficClass": {160, 0, 8}, "Alternate.HopLimit": {161, 0, 8},
		"Alternate.SL": {162, 0, 4}, "Alternate.SubnetLocal": {162, 4, 1}, "Alternate.AckTimeout": {163, 0, 5},
	},
	"REP": {
		"TID": {8, 0, 64}, "Options": {20, 0, 32}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32},
		"Vendor": {39, 0, 24} /* and see inParts */, "QKey": {32, 0, 32},
		"QPN": {36, 0, 24}, "LocalEECN": {40, 0, 24}, "PSN": {44, 0, 24},
		"ResponderResources": {48, 0, 8}, "InitiatorDepth": {49, 0, 8}, "TargetAckDelay": {50, 0, 5},
		"Failover": {50, 5, 2}, "FlowControl": {50, 7, 1}, "RNRRetry": {51, 0, 3}, "SRQ": {51, 3, 1},
		"CAGUID": {52, 0, 64}, "Private": {60, 0, 196 * 8},
	},
	"REJ": {
		"TID": {8, 0, 64}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32}, "Answers": {32, 0, 2},
		"ARILen": {33, 0, 7}, "Reason": {34, 0, 16}, "ARI": {36, 0, 72 * 8}, "Private": {108, 0, 148 * 8},
	},
	"MRA": {
		"TID": {8, 0, 64}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32}, "Answers": {32, 0, 2},
		"ServiceTimeout": {33, 0, 5}, "Private": {34, 0, 222 * 8},
	},
	"RTU": {
		"TID": {8, 0, 64}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32}, "Private": {32, 0, 224 * 8},
	},
	"DREQ": {
		"TID": {8, 0, 64}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32}, "RemoteQPN": {32, 0, 24},
		"Private": {36, 0, 220 * 8},
	},
	"DREP": {
		"TID": {8, 0, 64}, "LocalID": {24, 0, 32}, "RemoteID": {28, 0, 32}, "Private": {32, 0, 224 * 8},
	},
	"SIDR_REQ": {
		"TID": {8, 0, 64}, "RequestID": {24, 0, 32}, "PKey": {28, 0, 16}, "ServiceID": {32, 0, 64},
		"Private": {40, 0, 216 * 8},
	},
	"SIDR_REP": {
		"TID": {8, 0, 64}, "RequestID": {24, 0, 32}, "Status": {28, 0, 8}, "InfoLen": {29, 0, 8},
		"QPN": {32, 0, 24}, "ServiceID": {36, 0, 64}, "QKey": {44, 0, 32}, "Info": {48, 0, 72 * 8},
		"Private": {120, 0, 136 * 8},
	},
}

// inParts are the bytes of the vendor ID of a REP, ibta_vol1_c12.h CM_REP_VENDOR_ID_H, _M and _L.
var inParts = map[int]bool{39: true, 43: true, 47: true}

func messages() map[string]Message {
	return map[string]Message{
		"REQ": &REQ{}, "REP": &REP{}, "REJ": &REJ{}, "MRA": &MRA{}, "RTU": &RTU{}, "DREQ": &DREQ{}, "DREP": &DREP{},
		"SIDR_REQ": &SIDRREQ{}, "SIDR_REP": &SIDRREP{},
	}
}

// fill sets a field to all ones in its width.
func fill(v reflect.Value, bits int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(0xff)
		}
	default:
		v.SetUint(^uint64(0) >> (64 - bits))
	}
}

func field(v reflect.Value, path string) reflect.Value {
	for _, p := range strings.Split(path, ".") {
		v = v.FieldByName(p)
	}
	return v
}

func countFields(t reflect.Type) int {
	n := 0
	for i := range t.NumField() {
		if f := t.Field(i).Type; f.Kind() == reflect.Struct {
			n += countFields(f)
		} else {
			n++
		}
	}
	return n
}

// TestLayout checks that every field occupies exactly the bits of the kernel's structures, and that
// no field is missing from the table.
func TestLayout(t *testing.T) {
	for name, fields := range wireFields {
		if n := countFields(reflect.TypeOf(messages()[name]).Elem()); n != len(fields) {
			t.Errorf("%s has %d fields, the table %d", name, n, len(fields))
		}
		for path, at := range fields {
			var empty, full MAD
			msg := messages()[name]
			if err := msg.Put(&empty); err != nil {
				t.Fatal(err)
			}
			v := field(reflect.ValueOf(msg).Elem(), path)
			if !v.IsValid() {
				t.Errorf("%s has no field %s", name, path)
				continue
			}
			fill(v, at[2])
			short := path == "ARILen" || path == "InfoLen"
			if short {
				v.SetUint(SizeARI) // the codec refuses more; 72 is 0b1001000
			}
			if err := msg.Put(&full); err != nil {
				t.Errorf("%s.%s at its largest: %v", name, path, err)
				continue
			}
			first := at[0]*8 + at[1]
			for bit := range MADSize * 8 {
				mask := byte(0x80) >> (bit % 8)
				changed := (full[bit/8]^empty[bit/8])&mask != 0
				inside := bit >= first && bit < first+at[2]
				if name == "REP" && path == "Vendor" {
					inside = inParts[bit/8]
				}
				if changed != inside && !(inside && short) {
					t.Errorf("%s.%s: bit %d of byte %d: changed %v, inside the field %v", name, path, bit%8, bit/8, changed, inside)
				}
			}
		}
	}
}

// TestWidths checks that a value one too wide is refused, with its name.
func TestWidths(t *testing.T) {
	for name, fields := range wireFields {
		for path, at := range fields {
			msg := messages()[name]
			v := field(reflect.ValueOf(msg).Elem(), path)
			if v.Kind() == reflect.Array || v.Kind() == reflect.Bool || int(v.Type().Size())*8 == at[2] {
				continue
			}
			v.SetUint(1 << at[2])
			var fe *FieldError
			if err := msg.Put(new(MAD)); !errors.As(err, &fe) || !errors.Is(err, ErrRange) {
				t.Errorf("%s.%s = 1<<%d: error %v, want a *FieldError that is ErrRange", name, path, at[2], err)
			}
		}
	}
	if err := (&REJ{ARILen: SizeARI + 1}).Put(new(MAD)); !errors.Is(err, ErrRange) {
		t.Errorf("REJ with 73 bytes of ARI: %v, want ErrRange", err)
	}
	if err := (&SIDRREP{InfoLen: SizeARI + 1}).Put(new(MAD)); !errors.Is(err, ErrRange) {
		t.Errorf("SIDR_REP with 73 bytes of information: %v, want ErrRange", err)
	}
}

// drawMessage draws a message that is valid on the wire.
func drawMessage(t *rapid.T) Message {
	names := []string{"REQ", "REP", "REJ", "MRA", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"}
	name := rapid.SampledFrom(names).Draw(t, "kind")
	msg := messages()[name]
	for path, at := range wireFields[name] {
		v := field(reflect.ValueOf(msg).Elem(), path)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(rapid.Bool().Draw(t, path))
		case reflect.Array:
			reflect.Copy(v, reflect.ValueOf(rapid.SliceOfN(rapid.Byte(), v.Len(), v.Len()).Draw(t, path)))
		default:
			lo, hi := uint64(0), ^uint64(0)>>(64-at[2])
			switch path {
			case "LocalID", "RemoteID", "RequestID":
				lo = 1
			case "QPN":
				lo = 2
			case "Answers":
				hi = 2
			case "ARILen", "InfoLen":
				hi = SizeARI
			}
			v.SetUint(rapid.Uint64Range(lo, hi).Draw(t, path))
		}
	}
	return msg
}

// TestRoundTrip checks that parsing an encoded message returns all of it.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := drawMessage(t)
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		got := must.Get(Parse(m[:]))(t)
		if !reflect.DeepEqual(got, msg) {
			t.Fatalf("parsed %+v, put %+v", got, msg)
		}
	})
}

// TestParseRefuses checks that invalid datagrams are refused, with the name of the field.
func TestParseRefuses(t *testing.T) {
	good := func() MAD {
		var m MAD
		if err := (&REQ{LocalID: 1, QPN: 2}).Put(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	set := func(msg Message, o int, v byte) []byte {
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		m[o] = v
		return m[:]
	}
	g := good()
	for _, c := range []struct {
		field string
		b     []byte
	}{
		{"size", nil},
		{"size", g[:255]},
		{"size", append(g[:], 0)},
		{"base version", set(&REQ{LocalID: 1, QPN: 2}, 0, 2)},
		{"management class", set(&REQ{LocalID: 1, QPN: 2}, 1, 3)},
		{"class version", set(&REQ{LocalID: 1, QPN: 2}, 2, 1)},
		{"method", set(&REQ{LocalID: 1, QPN: 2}, 3, 0x83)},
		{"status", set(&REQ{LocalID: 1, QPN: 2}, 5, 1)},
		{"attribute ID", set(&REQ{LocalID: 1, QPN: 2}, 17, 0x19)},
		{"attribute ID", set(&REQ{LocalID: 1, QPN: 2}, 17, 0x0f)},
		{"local communication ID", set(&REQ{LocalID: 1, QPN: 2}, 27, 0)},
		{"local QPN", set(&REQ{LocalID: 1, QPN: 2}, 58, 1)},
		{"remote communication ID", set(&REP{LocalID: 1, RemoteID: 1, QPN: 2}, 31, 0)},
		{"local QPN", set(&REP{LocalID: 1, RemoteID: 1, QPN: 2}, 38, 0)},
		{"message rejected", set(&REJ{RemoteID: 1}, 32, 0xc0)},
		{"reject info length", set(&REJ{RemoteID: 1}, 33, 73<<1)},
		{"communication IDs", set(&REJ{RemoteID: 1}, 31, 0)},
		{"message MRAed", set(&MRA{LocalID: 1, RemoteID: 1}, 32, 0xc0)},
		{"local communication ID", set(&RTU{LocalID: 1, RemoteID: 1}, 27, 0)},
		{"remote communication ID", set(&DREQ{LocalID: 1, RemoteID: 1}, 31, 0)},
		{"local communication ID", set(&DREP{LocalID: 1, RemoteID: 1}, 27, 0)},
		{"request ID", set(&SIDRREQ{RequestID: 1}, 27, 0)},
		{"request ID", set(&SIDRREP{RequestID: 1, QPN: 2}, 27, 0)},
		{"local QPN", set(&SIDRREP{RequestID: 1, QPN: 2}, 34, 1)},
		{"additional information length", set(&SIDRREP{RequestID: 1, QPN: 2}, 29, 73)},
	} {
		_, err := Parse(c.b)
		var fe *FieldError
		if !errors.As(err, &fe) || !errors.Is(err, ErrMalformed) || fe.Field != c.field {
			t.Errorf("%s: error %v, want ErrMalformed about it", c.field, err)
		}
	}
}

// TestSIDRStatusValues checks the statuses against the specification's numbers (IBTA table 121),
// which other implementations send.
func TestSIDRStatusValues(t *testing.T) {
	for i, s := range []SIDRStatus{SIDRSuccess, SIDRUnsupported, SIDRReject, SIDRNoQP, SIDRRedirect, SIDRUnsupportedVersion} {
		if int(s) != i {
			t.Errorf("outcome %d is encoded as %d", i, s)
		}
	}
}

// TestGolden checks the codec in both directions against the datagrams in testdata, which were
// written byte by byte from the specification's figures.
func TestGolden(t *testing.T) {
	req := &REQ{
		TID: 0x1122334455667788, LocalID: 0xa1b2c3d4, ServiceID: ServiceID(0x0106, 7471), CAGUID: 0x0002c90300a1b2c3,
		QPN: 0x010203, ResponderResources: 16, InitiatorDepth: 8, RemoteTimeout: 20, PSN: 0xabcdef,
		LocalTimeout: 18, RetryCount: 7, PKey: 0xffff, PathMTU: 3, RNRRetry: 6, MaxCMRetries: 15, FlowControl: true,
		Vendor: 0x0002c9, Options: 0x80000003,
	}
	req.Primary = Path{LocalLID: 0xffff, RemoteLID: 0xffff, HopLimit: 64, AckTimeout: 14, Rate: 3, SL: 1, SubnetLocal: true}
	req.Primary.LocalGID = netip.MustParseAddr("::ffff:10.0.0.1").As16()
	req.Primary.RemoteGID = netip.MustParseAddr("::ffff:10.0.0.2").As16()
	ConnHeader{SrcPort: 0xc001, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")}.Put(&req.Private)
	copy(req.Private[ConnHeaderSize:], "hello")
	rep := &REP{
		TID: 0x1122334455667788, LocalID: 0x01020304, RemoteID: 0xa1b2c3d4, QPN: 0x0a0b0c, PSN: 0x123456,
		ResponderResources: 8, InitiatorDepth: 16, TargetAckDelay: 5, FlowControl: true, RNRRetry: 7, SRQ: true,
		CAGUID: 0x0002c90300ffeedd, Vendor: 0x1a02c9, Options: 0x40000001,
	}
	copy(rep.Private[:], "welcome")
	rej := &REJ{TID: 1, RemoteID: 0xa1b2c3d4, Answers: AnswersREQ, Reason: RejInvalidMTU, ARILen: 1}
	rej.ARI[0] = 3
	copy(rej.Private[:], "no")
	sreq := &SIDRREQ{TID: 5, RequestID: 0xa1b2c3d4, PKey: 0xffff, ServiceID: ServiceID(0x0111, 7471)}
	copy(sreq.Private[:], "who?")
	srep := &SIDRREP{TID: 5, RequestID: 0xa1b2c3d4, InfoLen: 2, QPN: 0x0a0b0c, ServiceID: ServiceID(0x0111, 7471), QKey: 0x01234567}
	copy(srep.Info[:], "\x0e\x0f")
	copy(srep.Private[:], "me")
	for name, msg := range map[string]Message{
		"req": req, "rep": rep, "rej": rej,
		"mra":  &MRA{TID: 2, LocalID: 0x01020304, RemoteID: 0xa1b2c3d4, Answers: AnswersREP, ServiceTimeout: 24},
		"rtu":  &RTU{TID: 3, LocalID: 0xa1b2c3d4, RemoteID: 0x01020304},
		"dreq": &DREQ{TID: 4, LocalID: 0xa1b2c3d4, RemoteID: 0x01020304, RemoteQPN: 0x0a0b0c},
		"drep": &DREP{TID: 4, LocalID: 0x01020304, RemoteID: 0xa1b2c3d4},

		"sidr_req": sreq, "sidr_rep": srep,
	} {
		want := goldenMAD(t, "testdata/"+name+".hex")
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatal(err)
		}
		if m != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, hex.Dump(m[:]), hex.Dump(want[:]))
		}
		if got, err := Parse(want[:]); err != nil || !reflect.DeepEqual(got, msg) {
			t.Errorf("%s parsed as %+v, %v; want %+v", name, got, err, msg)
		}
	}
}

// goldenMAD reads hex digits; # begins a comment, missing bytes at the end are zero.
func goldenMAD(t *testing.T, file string) (m MAD) {
	t.Helper()
	b := must.Get(os.ReadFile(file))(t)
	var digits strings.Builder
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	raw, err := hex.DecodeString(digits.String())
	if err != nil || len(raw) > MADSize {
		t.Fatalf("%s: %d bytes, %v", file, len(raw), err)
	}
	copy(m[:], raw)
	return m
}

func TestConnHeader(t *testing.T) {
	for _, h := range []ConnHeader{
		{SrcPort: 1, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")},
		{SrcPort: 65535, Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("fe80::2")},
	} {
		var b [PrivateREQ]byte
		for i := range b {
			b[i] = 0xee
		}
		h.Put(&b)
		if got, err := ParseConnHeader(&b); err != nil || got != h {
			t.Errorf("%+v came back as %+v, %v", h, got, err)
		}
		if b[ConnHeaderSize] != 0xee {
			t.Error("the header wrote into the consumer's private data")
		}
	}
	for _, c := range []struct{ o, v byte }{{0, 1}, {1, 0x50}, {1, 0}} {
		var b [PrivateREQ]byte
		b[1] = 0x40
		b[c.o] = c.v
		if _, err := ParseConnHeader(&b); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d = %d: %v, want ErrMalformed", c.o, c.v, err)
		}
	}
}

// FuzzParse checks that no input makes the parser panic, and that an accepted one keeps its meaning
// when it is encoded again.
func FuzzParse(f *testing.F) {
	for _, msg := range []Message{
		&REQ{LocalID: 1, QPN: 2}, &REP{LocalID: 1, RemoteID: 2, QPN: 3}, &REJ{RemoteID: 1}, &MRA{LocalID: 1, RemoteID: 2},
		&RTU{LocalID: 1, RemoteID: 2}, &DREQ{LocalID: 1, RemoteID: 2}, &DREP{LocalID: 1, RemoteID: 2},
		&SIDRREQ{RequestID: 1}, &SIDRREP{RequestID: 1, QPN: 2}, &SIDRREP{RequestID: 1, Status: SIDRReject},
	} {
		var m MAD
		if err := msg.Put(&m); err != nil {
			f.Fatal(err)
		}
		f.Add(m[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		msg, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v is not ErrMalformed", err)
			}
			return
		}
		var m MAD
		if err := msg.Put(&m); err != nil {
			t.Fatalf("parsed %+v and could not write it: %v", msg, err)
		}
		again, err := Parse(m[:])
		if err != nil || !reflect.DeepEqual(again, msg) {
			t.Fatalf("parsed %+v, then %+v, %v", msg, again, err)
		}
		if req, ok := msg.(*REQ); ok {
			if h, err := ParseConnHeader(&req.Private); err == nil && !h.Src.IsValid() {
				t.Fatalf("RDMA CM header without a source: %+v", h)
			}
		}
	})
}
