package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// asHeader returns o as a Header with this opcode.
func (o Only) asHeader(op Opcode) Header {
	h := Header{
		Opcode: op, MigReq: true, PKey: DefaultPKey, PadCount: PadLen(int(o.Length)),
		DestQP: o.DestQP, PSN: o.PSN, Solicited: o.Solicited, AckReq: o.AckReq,
	}
	if op == RCWriteOnly {
		h.VA, h.RKey, h.Length = o.VA, o.RKey, o.Length
	}
	return h
}

// Rule: an Only and the Header with its fields have the same encoding, and parse it alike.
func TestOnlyIsAHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Only{
			DestQP: rapid.Uint32Range(0, qpnMask).Draw(t, "qp"), PSN: PSN(rapid.Uint32Range(0, psnMask).Draw(t, "psn")),
			Length: rapid.Uint32().Draw(t, "length"), Solicited: rapid.Bool().Draw(t, "solicited"),
			AckReq: rapid.Bool().Draw(t, "ack"), VA: rapid.Uint64().Draw(t, "va"), RKey: rapid.Uint32().Draw(t, "rkey"),
		}
		for _, op := range []Opcode{RCSendOnly, RCWriteOnly} {
			var b [MaxHeader]byte
			encode, want := o.EncodeWrite, o
			if op == RCSendOnly {
				encode = o.EncodeSend
				want.VA, want.RKey, want.Length = 0, 0, 0
			}
			n := encode(&b)
			h := o.asHeader(op)
			if raw := h.Append(nil); !bytes.Equal(raw, b[:n]) {
				t.Fatalf("%v encodes to %x, as a Header to %x", op, b[:n], raw)
			}
			var got Only
			if as, ok := got.Parse(b[:n]); !ok || as != op || got != want {
				t.Fatalf("%x parses as %v (%v) to %+v, want %v %+v", b[:n], as, ok, got, op, want)
			}
		}
	})
}

// Rule: EncodeAck writes the encoding of a Header with the same fields.
func TestEncodeAckIsAHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			Opcode: rapid.SampledFrom([]Opcode{RCAcknowledge, XRCAcknowledge}).Draw(t, "opcode"), PKey: DefaultPKey, MigReq: true,
			DestQP: rapid.Uint32Range(0, qpnMask).Draw(t, "qp"), PSN: PSN(rapid.Uint32Range(0, psnMask).Draw(t, "psn")),
			Syndrome: Syndrome(rapid.Uint8().Draw(t, "syndrome")), MSN: PSN(rapid.Uint32Range(0, psnMask).Draw(t, "msn")),
		}
		var b [MaxHeader]byte
		n := EncodeAck(&b, h.Opcode, h.DestQP, h.PSN, h.Syndrome, h.MSN)
		if want := h.Append(nil); !bytes.Equal(b[:n], want) {
			t.Fatalf("encodes to %x, as a Header to %x", b[:n], want)
		}
	})
}

// Rule: for any bytes, Parse accepts a packet that Only.Parse accepts, with all of b as headers and
// the same fields; every one-packet SEND and WRITE on the default partition is accepted.
func FuzzParseOnly(f *testing.F) {
	for _, raw := range readGolden(f) {
		f.Add(raw)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var o Only
		var h Header
		op, ok := o.Parse(b)
		n, err := Parse(b, &h)
		plain := err == nil && n == len(b) && (h.Opcode == RCSendOnly || h.Opcode == RCWriteOnly) && h.PKey == DefaultPKey
		if ok != plain {
			t.Fatalf("%x: accepted %v, but to Parse it is %+v (%v)", b, ok, h, err)
		}
		if !ok {
			return
		}
		want := Only{DestQP: h.DestQP, PSN: h.PSN, Length: h.Length, Solicited: h.Solicited, AckReq: h.AckReq, VA: h.VA, RKey: h.RKey}
		if op != h.Opcode || o != want {
			t.Fatalf("%x: %v %+v, to Parse it is %+v", b, op, o, h)
		}
	})
}
