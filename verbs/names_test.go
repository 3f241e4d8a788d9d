package verbs

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// enums are the named types: the function that prints a value, its output for a value without a
// name, and the largest value tried (flags: one bit at a time).
var enums = map[string]struct {
	show  func(uint32) string
	flags bool
}{
	"WROpcode":       {func(v uint32) string { return WROpcode(v).String() }, false},
	"WCOpcode":       {func(v uint32) string { return WCOpcode(v).String() }, false},
	"WCStatus":       {func(v uint32) string { return WCStatus(v).String() }, false},
	"QPType":         {func(v uint32) string { return QPType(v).String() }, false},
	"QPState":        {func(v uint32) string { return QPState(v).String() }, false},
	"AsyncEventType": {func(v uint32) string { return AsyncEventType(v).String() }, false},
	"PortState":      {func(v uint32) string { return PortState(v).String() }, false},
	"CMEventType":    {func(v uint32) string { return CMEventType(v).String() }, false},
	"WCFlags":        {func(v uint32) string { return WCFlags(v).String() }, true},
	"SendFlags":      {func(v uint32) string { return SendFlags(v).String() }, true},
	"AccessFlags":    {func(v uint32) string { return AccessFlags(v).String() }, true},
	"Advice":         {func(v uint32) string { return Advice(v).String() }, false},
	"ODPOps":         {func(v uint32) string { return ODPOps(v).String() }, true},
	"DataOrder":      {func(v uint32) string { return DataOrder(v).String() }, true},
	"QPAttrMask":     {func(v uint32) string { return QPAttrMask(v).String() }, true},
}

// Every value prints the name from the C header, and a value missing from the header prints its
// number.
func TestNamesAreTheHeaders(t *testing.T) {
	f, err := os.Open("testdata/names.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	golden := map[string]map[uint32]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		var kind, name string
		var v uint32
		if _, err := fmt.Sscan(line, &kind, &v, &name); err != nil {
			t.Fatalf("golden file: %q: %v", line, err)
		}
		if golden[kind] == nil {
			golden[kind] = map[uint32]string{}
		}
		golden[kind][v] = name
	}
	if len(golden) != len(enums) {
		t.Fatalf("the golden file has %d enumerations, the test knows %d", len(golden), len(enums))
	}
	for kind, e := range enums {
		try := func(v uint32, unknown string) {
			want, ok := golden[kind][v]
			if !ok {
				want = unknown
			}
			if got := e.show(v); got != want {
				t.Errorf("%s %d prints %q, want %q", kind, v, got, want)
			}
		}
		if e.flags {
			for b := uint32(1); b != 0; b <<= 1 {
				try(b, fmt.Sprintf("0x%x", b))
			}
			try(0, "0")
			continue
		}
		for v := uint32(0); v < 300; v++ {
			try(v, fmt.Sprintf("%s(%d)", kind, v))
		}
	}
	if n := len(golden["WCStatus"]); n != NumWCStatus {
		t.Errorf("NumWCStatus is %d, the header has %d", NumWCStatus, n)
	}
}

func TestFlagsAreJoined(t *testing.T) {
	if got := (SendFence | SendInline | 1<<20).String(); got != "FENCE|INLINE|0x100000" {
		t.Errorf("flags print %q", got)
	}
}

// A success completes with the opcode given in ibv_poll_cq(3), and the predicates divide the
// opcodes as documented.
func TestOpcodeKinds(t *testing.T) {
	for o, want := range map[WROpcode]WCOpcode{
		WRRDMAWrite: WCRDMAWrite, WRRDMAWriteWithImm: WCRDMAWrite,
		WRSend: WCSend, WRSendWithImm: WCSend, WRSendWithInv: WCSend,
		WRRDMARead: WCRDMARead, WRAtomicCmpAndSwp: WCCompSwap,
		WRAtomicFetchAndAdd: WCFetchAdd, WRLocalInv: WCLocalInv,
		WRBindMW: WCBindMW, WRTSO: WCTSO, WRDriver1: WCDriver1,
		WRFlush: WCFlush, WRAtomicWrite: WCAtomicWrite,
	} {
		if got := o.Completion(); got != want {
			t.Errorf("%v completes with %v, want %v", o, got, want)
		}
		if imm := strings.HasSuffix(o.String(), "WITH_IMM"); o.HasImm() != imm {
			t.Errorf("%v: HasImm is %v", o, o.HasImm())
		}
		if rmw := o == WRAtomicCmpAndSwp || o == WRAtomicFetchAndAdd; o.IsAtomic() != rmw {
			t.Errorf("%v: IsAtomic is %v", o, o.IsAtomic())
		}
		if ext := o == WRFlush || o == WRAtomicWrite; o.ExtendedOnly() != ext {
			t.Errorf("%v: ExtendedOnly is %v", o, o.ExtendedOnly())
		}
	}
	set := Opcodes(WRSend, WRAtomicWrite)
	for o := WROpcode(0); o < 40; o++ {
		if want := o == WRSend || o == WRAtomicWrite; set.Has(o) != want {
			t.Errorf("set of SEND and ATOMIC_WRITE: Has(%d) is %v", o, set.Has(o))
		}
	}
}
