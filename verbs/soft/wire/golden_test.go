package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// goldenHeaders is the decoded headers of the packets in testdata/golden.txt.
var goldenHeaders = map[string]Header{
	"rc_send_only":       {Opcode: RCSendOnly, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 1},
	"rc_send_first":      {Opcode: RCSendFirst, MigReq: true, PKey: 0xffff, DestQP: 0xabcdef, PSN: 0xffffff},
	"rc_send_middle":     {Opcode: RCSendMiddle, MigReq: true, PKey: 0x8001, DestQP: 0xabcdef},
	"rc_send_last_imm":   {Opcode: RCSendLastImm, Solicited: true, MigReq: true, PadCount: 3, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 2, Imm: 0xdeadbeef},
	"rc_send_only_inv":   {Opcode: RCSendOnlyInv, PadCount: 3, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 3, InvKey: 0xcafef00d},
	"rc_write_only":      {Opcode: RCWriteOnly, MigReq: true, PadCount: 3, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 0xfffffe, VA: 0x700011223344, RKey: 0x12345678, Length: 0x1003},
	"rc_write_only_imm":  {Opcode: RCWriteOnlyImm, Solicited: true, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 5, VA: 0x700011223344, RKey: 0x12345678, Imm: 0x01020304},
	"rc_read_request":    {Opcode: RCReadRequest, PKey: 0xffff, FECN: true, BECN: true, DestQP: 0x12, AckReq: true, PSN: 6, VA: 0xffffffffffffffff, RKey: 1, Length: 0x80000000},
	"rc_read_resp_first": {Opcode: RCReadRespFirst, PKey: 0xffff, DestQP: 0x13, PSN: 6, Syndrome: Ack(CreditInvalid), MSN: 7},
	"rc_read_resp_mid":   {Opcode: RCReadRespMiddle, PKey: 0xffff, DestQP: 0x13, PSN: 7},
	"rc_ack":             {Opcode: RCAcknowledge, PKey: 0xffff, DestQP: 0x13, PSN: 9, Syndrome: Ack(CreditInvalid), MSN: 0xffffff},
	"rc_rnr_nak":         {Opcode: RCAcknowledge, PKey: 0xffff, DestQP: 0x13, PSN: 10, Syndrome: RNRNak(12), MSN: 8},
	"rc_nak_access":      {Opcode: RCAcknowledge, PKey: 0xffff, DestQP: 0x13, PSN: 11, Syndrome: Nak(NakAccess), MSN: 9},
	"rc_atomic_ack":      {Opcode: RCAtomicAck, PKey: 0xffff, DestQP: 0x13, PSN: 12, Syndrome: Ack(CreditInvalid), MSN: 10, Orig: 0x0123456789abcdef},
	"rc_compare_swap":    {Opcode: RCCompareSwap, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 13, VA: 0x700011223348, RKey: 0x12345678, SwapAdd: 0x1111111122222222, Compare: 0x3333333344444444},
	"rc_fetch_add":       {Opcode: RCFetchAdd, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 14, VA: 0x700011223348, RKey: 0x12345678, SwapAdd: 1},
	"rc_flush":           {Opcode: RCFlush, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 15, FlushPlacement: 2, FlushSelectivity: 1, VA: 0x700011223344, RKey: 0x12345678, Length: 0x1000},
	"rc_atomic_write":    {Opcode: RCAtomicWrite, PKey: 0xffff, DestQP: 0x12, AckReq: true, PSN: 16, VA: 0x700011223348, RKey: 0x12345678, Length: 8},
	"uc_write_last":      {Opcode: UCWriteLast, PKey: 0xffff, FECN: true, DestQP: 0x14, PSN: 17},
	"ud_send_only":       {Opcode: UDSendOnly, PKey: 0xffff, DestQP: 1, PSN: 1, QKey: GSIQKey, SrcQP: 1},
	"ud_send_only_imm":   {Opcode: UDSendOnlyImm, PKey: 0x7fff, BECN: true, DestQP: 0x15, PSN: 2, QKey: 0x11111111, SrcQP: 0xfffffe, Imm: 0x100},
	"xrc_send_only":      {Opcode: XRCSendOnly, PKey: 0xffff, DestQP: 0x16, AckReq: true, PSN: 3, XRCSRQ: 0x77},
	"xrc_fetch_add":      {Opcode: XRCFetchAdd, PKey: 0xffff, DestQP: 0x16, AckReq: true, PSN: 4, XRCSRQ: 0x77, VA: 0x700011223348, RKey: 0x12345678, SwapAdd: 1},
	"xrc_ack":            {Opcode: XRCAcknowledge, PKey: 0xffff, DestQP: 0x17, PSN: 4, Syndrome: Ack(CreditInvalid), MSN: 1},
}

// readGolden returns the packets of testdata/golden.txt by name.
func readGolden(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]byte{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, digits, ok := strings.Cut(line, ":")
		raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if !ok || err != nil {
			t.Fatalf("golden line %q: %v", line, err)
		}
		out[name] = raw
	}
	return out
}

func TestGoldenPacketsEncodeAndParse(t *testing.T) {
	packets := readGolden(t)
	if len(packets) != len(goldenHeaders) {
		t.Fatalf("%d packets in testdata, %d meanings here", len(packets), len(goldenHeaders))
	}
	for name, raw := range packets {
		want, ok := goldenHeaders[name]
		if !ok {
			t.Errorf("%s: no meaning written down", name)
			continue
		}
		var into [MaxHeader]byte
		if n := want.Encode(&into); !bytes.Equal(into[:n], raw) {
			t.Errorf("%s encodes to\n %x, want\n %x", name, into[:n], raw)
		}
		if got := want.Append([]byte("ab")); !bytes.Equal(got, append([]byte("ab"), raw...)) {
			t.Errorf("%s appends %x", name, got)
		}
		var got Header
		n, err := Parse(append(raw[:len(raw):len(raw)], "payload"...), &got)
		if err != nil || n != len(raw) || got != want {
			t.Errorf("%s parses to\n %+v (%d bytes, %v), want\n %+v (%d bytes)", name, got, n, err, want, len(raw))
		}
	}
}
