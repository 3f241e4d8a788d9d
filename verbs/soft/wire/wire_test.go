package wire

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// validOpcodes lists every opcode that exists.
func validOpcodes() (os []Opcode) {
	for o := range transportOpcodeEnd {
		if Opcode(o).Valid() {
			os = append(os, Opcode(o))
		}
	}
	return os
}

// canonical keeps the fields of h that its opcode carries, which must survive encoding.
func canonical(h Header) Header {
	ext := h.Opcode.Ext()
	c := Header{
		Opcode: h.Opcode, Solicited: h.Solicited, MigReq: h.MigReq, FECN: h.FECN, BECN: h.BECN,
		AckReq: h.AckReq, PadCount: h.PadCount, PKey: h.PKey, DestQP: h.DestQP, PSN: h.PSN,
	}
	if ext&ExtXRCETH != 0 {
		c.XRCSRQ = h.XRCSRQ
	}
	if ext&ExtDETH != 0 {
		c.QKey, c.SrcQP = h.QKey, h.SrcQP
	}
	if ext&ExtFETH != 0 {
		c.FlushPlacement, c.FlushSelectivity = h.FlushPlacement, h.FlushSelectivity
	}
	if ext&(ExtRETH|ExtAtomicETH) != 0 {
		c.VA, c.RKey = h.VA, h.RKey
	}
	if ext&ExtRETH != 0 {
		c.Length = h.Length
	}
	if ext&ExtAtomicETH != 0 {
		c.SwapAdd, c.Compare = h.SwapAdd, h.Compare
	}
	if ext&ExtAETH != 0 {
		c.Syndrome, c.MSN = h.Syndrome, h.MSN
	}
	if ext&ExtAtomicAck != 0 {
		c.Orig = h.Orig
	}
	if ext&ExtImm != 0 {
		c.Imm = h.Imm
	}
	if ext&ExtIETH != 0 {
		c.InvKey = h.InvKey
	}
	return c
}

func drawHeader(t *rapid.T) Header {
	u24 := rapid.Uint32Range(0, qpnMask)
	return Header{
		Opcode:    rapid.SampledFrom(validOpcodes()).Draw(t, "opcode"),
		Solicited: rapid.Bool().Draw(t, "se"), MigReq: rapid.Bool().Draw(t, "m"),
		FECN: rapid.Bool().Draw(t, "fecn"), BECN: rapid.Bool().Draw(t, "becn"), AckReq: rapid.Bool().Draw(t, "ackreq"),
		PadCount: rapid.Uint8Range(0, 3).Draw(t, "pad"), PKey: rapid.Uint16().Draw(t, "pkey"),
		DestQP: u24.Draw(t, "qp"), PSN: PSN(u24.Draw(t, "psn")), XRCSRQ: u24.Draw(t, "srq"),
		QKey: rapid.Uint32().Draw(t, "qkey"), SrcQP: u24.Draw(t, "srcqp"),
		VA: rapid.Uint64().Draw(t, "va"), RKey: rapid.Uint32().Draw(t, "rkey"), Length: rapid.Uint32().Draw(t, "len"),
		SwapAdd: rapid.Uint64().Draw(t, "swap"), Compare: rapid.Uint64().Draw(t, "cmp"),
		Syndrome: rapid.SampledFrom([]Syndrome{Ack(0), Ack(CreditInvalid), RNRNak(0), RNRNak(31), Nak(NakSequence), Nak(NakInvalidRD)}).Draw(t, "syndrome"),
		MSN:      PSN(u24.Draw(t, "msn")), Orig: rapid.Uint64().Draw(t, "orig"), Imm: rapid.Uint32().Draw(t, "imm"),
		InvKey: rapid.Uint32().Draw(t, "inv"), FlushPlacement: rapid.Uint8Range(0, 15).Draw(t, "plt"), FlushSelectivity: rapid.Uint8Range(0, 3).Draw(t, "sel"),
	}
}

func TestWhatIsEncodedParsesToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		var b [MaxHeader]byte
		n := h.Encode(&b)
		var got Header
		m, err := Parse(b[:n], &got)
		if err != nil || m != n || got != canonical(h) {
			t.Fatalf("%v: encoded %x, parsed %+v (%d of %d bytes, %v), want %+v", h.Opcode, b[:n], got, m, n, err, canonical(h))
		}
	})
}

func TestFieldsWiderThanTheirPlaceAreCut(t *testing.T) {
	for _, o := range validOpcodes() {
		h := Header{Opcode: o, PadCount: 255, DestQP: 1<<24 | 5, PSN: 1<<24 | 6, XRCSRQ: 1<<24 | 7, SrcQP: 1<<24 | 8,
			MSN: 1<<24 | 9, FlushPlacement: 0xf1, FlushSelectivity: 0xf1}
		want := canonical(Header{Opcode: o, PadCount: 3, DestQP: 5, PSN: 6, XRCSRQ: 7, SrcQP: 8, MSN: 9, FlushPlacement: 1, FlushSelectivity: 1})
		var got Header
		if _, err := Parse(h.Append(nil), &got); err != nil || got != want {
			t.Errorf("%v: %+v (%v), want %+v: a wide field reached its neighbour", o, got, err, want)
		}
	}
}

func TestTruncatedPacketsAreRefused(t *testing.T) {
	for _, o := range validOpcodes() {
		raw := (&Header{Opcode: o}).Append(nil)
		if len(raw) != o.HeaderLen() || len(raw) > MaxHeader {
			t.Errorf("%v encodes to %d bytes, its header length is %d, the maximum %d", o, len(raw), o.HeaderLen(), MaxHeader)
		}
		for n := range raw {
			var h Header
			got, err := Parse(raw[:n:n], &h)
			if got != 0 || !errors.Is(err, &ParseError{Reason: Truncated}) || !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v cut to %d of %d bytes: %d bytes parsed, %v; must be refused as truncated", o, n, len(raw), got, err)
			}
		}
	}
}

func TestReservedValuesAreRefused(t *testing.T) {
	const nOpcodes = 25 + 12 + 2 + 25 // RC, UC, UD, XRC
	if n := len(validOpcodes()); n != nOpcodes {
		t.Errorf("%d opcodes exist, want %d", n, nOpcodes)
	}
	for o := range transportOpcodeEnd {
		raw := make([]byte, MaxHeader)
		raw[0] = byte(o)
		_, err := Parse(raw, new(Header))
		if refused := errors.Is(err, &ParseError{Reason: UnknownOpcode}); refused == Opcode(o).Valid() {
			t.Errorf("opcode 0x%02x: %v", o, err)
		}
		if !Opcode(o).Valid() && len((&Header{Opcode: Opcode(o)}).Append(nil)) != 0 {
			t.Errorf("opcode 0x%02x does not exist but encodes", o)
		}
	}
	for v := range 16 {
		raw := (&Header{Opcode: RCSendOnly}).Append(nil)
		raw[1] |= byte(v)
		_, err := Parse(raw, new(Header))
		if refused := errors.Is(err, &ParseError{Reason: BadVersion}); refused != (v != 0) {
			t.Errorf("transport header version %d: %v", v, err)
		}
	}
	for s := range 256 {
		_, err := Parse((&Header{Opcode: RCAcknowledge, Syndrome: Syndrome(s)}).Append(nil), new(Header))
		// ACK and RNR NAK have 32 values each, NAK has 5, the rest is reserved.
		ok := s < 0x40 || s >= 0x60 && s < 0x65
		if refused := errors.Is(err, &ParseError{Reason: BadSyndrome}); refused == ok {
			t.Errorf("syndrome 0x%02x (%v): %v", s, Syndrome(s), err)
		}
	}
}

func TestReservedBitsAreIgnored(t *testing.T) {
	raw := (&Header{Opcode: UDSendOnly, DestQP: 5, PSN: 6, SrcQP: 7}).Append(nil)
	var want, got Header
	if _, err := Parse(raw, &want); err != nil {
		t.Fatal(err)
	}
	raw[4] |= 0x3f  // beside FECN and BECN
	raw[8] |= 0x7f  // beside AckReq
	raw[16] |= 0xff // before the source queue pair
	if _, err := Parse(raw, &got); err != nil || got != want {
		t.Errorf("reserved bits changed the meaning to %+v (%v), want %+v", got, err, want)
	}
}

func TestErrorsSayWhatWasWrong(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want []string
	}{
		{"\x04\x00", []string{"2 bytes", "12"}},
		{"\x0a" + strings.Repeat("\x00", 14), []string{"RC_RDMA_WRITE_ONLY", "15 bytes", "28"}},
		{"\x5f" + strings.Repeat("\x00", 43), []string{"0x5f"}},
		{"\x04\x07" + strings.Repeat("\x00", 10), []string{"RC_SEND_ONLY", "version 7"}},
		{"\x11" + strings.Repeat("\x00", 11) + "\x7f\x00\x00\x00", []string{"RC_ACKNOWLEDGE", "0x7f"}},
	} {
		_, err := Parse([]byte(c.raw), new(Header))
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%x: error %q does not say %q", c.raw, err, w)
			}
		}
	}
}

func TestNamesAndKindsOfOpcodes(t *testing.T) {
	for _, c := range []struct {
		o                                  Opcode
		name                               string
		response, starts, ends, hasPayload bool
	}{
		{RCWriteOnly, "RC_RDMA_WRITE_ONLY", false, true, true, true},
		{UCSendMiddle, "UC_SEND_MIDDLE", false, false, false, true},
		{UDSendOnlyImm, "UD_SEND_ONLY_WITH_IMMEDIATE", false, true, true, true},
		{XRCReadRespLast, "XRC_RDMA_READ_RESPONSE_LAST", true, false, true, true},
		{RCAtomicAck, "RC_ATOMIC_ACKNOWLEDGE", true, true, true, false},
		{RCReadRequest, "RC_RDMA_READ_REQUEST", false, true, true, false},
		{RCFlush, "RC_FLUSH", false, true, true, false},
		{0x15, "opcode 0x15", false, false, false, false},
	} {
		if c.o.String() != c.name || c.o.Response() != c.response || c.o.Starts() != c.starts || c.o.Ends() != c.ends || c.o.HasPayload() != c.hasPayload {
			t.Errorf("%v: response %v starts %v ends %v payload %v, want %+v", c.o, c.o.Response(), c.o.Starts(), c.o.Ends(), c.o.HasPayload(), c)
		}
	}
	if got := TransportUC.With(OpWriteOnly); got != UCWriteOnly || got.Transport() != TransportUC || got.Op() != OpWriteOnly {
		t.Errorf("UC with WRITE_ONLY is %v", got)
	}
}

func TestPSNArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := PSN(rapid.Uint32Range(0, psnMask).Draw(t, "p"))
		const half = 1 << 23 // of the 24-bit space
		d := rapid.Int32Range(-half, half-1).Draw(t, "d")
		q := p.Add(uint32(d)) // a negative d wraps to a subtraction
		if q > psnMask || q.Diff(p) != d || q.Sub(uint32(d)) != p || q.Less(p) != (d < 0) {
			t.Fatalf("%#x%+d is %#x, their difference %d, less %v", p, d, q, q.Diff(p), q.Less(p))
		}
		n := rapid.Uint32Range(0, psnMask).Draw(t, "n")
		if in := q.In(p, n); in != (d >= 0 && uint32(d) < n || d < 0 && uint32(1<<24+int64(d)) < n) {
			t.Fatalf("%#x in [%#x, +%d): %v", q, p, n, in)
		}
	})
	if PSNWindow != 1<<23 || PSN(psnMask).Next() != 0 || NewPSN(1<<24|3) != 3 {
		t.Error("PSNs count modulo 2^24")
	}
}

func TestPadding(t *testing.T) {
	for n, want := range []uint8{0, 3, 2, 1, 0, 3} {
		if got := PadLen(n); got != want {
			t.Errorf("payload of %d bytes is padded by %d, want %d", n, got, want)
		}
	}
}

func TestEncodeAndParseAllocateNothing(t *testing.T) {
	var b [MaxHeader]byte
	var got Header
	for _, o := range validOpcodes() {
		h := Header{Opcode: o}
		if n := testing.AllocsPerRun(100, func() {
			n := h.Encode(&b)
			if _, err := Parse(b[:n], &got); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", o, n)
		}
	}
}

// FuzzParse checks that, for any bytes, parsing stays in bounds, and that an accepted packet
// encodes to one of the same length and meaning.
func FuzzParse(f *testing.F) {
	for _, raw := range readGolden(f) {
		f.Add(raw)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Header
		n, err := Parse(b, &h)
		if err != nil {
			if n != 0 || !errors.Is(err, ErrMalformed) || err.Error() == "" {
				t.Fatalf("refused with %d bytes taken and %v", n, err)
			}
			return
		}
		if n > len(b) || n != h.Opcode.HeaderLen() || h != canonical(h) {
			t.Fatalf("took %d of %d bytes for %+v", n, len(b), h)
		}
		raw := h.Append(nil)
		if m, err := Parse(raw, &again); err != nil || m != n || again != h {
			t.Fatalf("%x parsed to %+v, encoded to %x, parsed again to %+v (%v)", b, h, raw, again, err)
		}
		// Apart from reserved bits the bytes are the same: a bit set in the encoding was set in the
		// input.
		for i, v := range raw {
			if v&^b[i] != 0 {
				t.Fatalf("byte %d: encoded %08b from %08b", i, v, b[i])
			}
		}
	})
}

func BenchmarkEncodeParseWriteOnly(b *testing.B) {
	h := Header{Opcode: RCWriteOnly, PKey: DefaultPKey, DestQP: 0x11, AckReq: true, VA: 0x7000, RKey: 1, Length: 8}
	var into [MaxHeader]byte
	var got Header
	for b.Loop() {
		h.PSN = h.PSN.Next()
		n := h.Encode(&into)
		if _, err := Parse(into[:n], &got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeParseAck(b *testing.B) {
	h := Header{Opcode: RCAcknowledge, PKey: DefaultPKey, DestQP: 0x11, Syndrome: Ack(CreditInvalid)}
	var into [MaxHeader]byte
	var got Header
	for b.Loop() {
		h.PSN = h.PSN.Next()
		n := h.Encode(&into)
		if _, err := Parse(into[:n], &got); err != nil {
			b.Fatal(err)
		}
	}
}
