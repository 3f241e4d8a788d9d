package verbstest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// Each case has a unique name, made of words, and cites its rule.
func TestCasesAreNamedAfterRules(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)+$`)
	seen := map[string]bool{}
	cases := Cases()
	for _, s := range cases {
		if !name.MatchString(s.Name) || seen[s.Name] {
			t.Errorf("case name %q is no name or used twice", s.Name)
		}
		seen[s.Name] = true
		if s.Rule == "" || s.run == nil {
			t.Errorf("case %s cites no rule or does nothing", s.Name)
		}
	}
	const least = 300 // far above what a provider could pass by chance
	if len(cases) < least {
		t.Errorf("%d cases, want at least %d", len(cases), least)
	}
}

// A pair without capabilities runs nothing, and each case has a reason.
func TestNeedsAreReported(t *testing.T) {
	types := []verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend, verbs.QPTXRCRecv}
	full := Caps{
		Opcodes: ^verbs.OpcodeSet(0), QPTypes: types, MTU: verbs.MTUJumbo, MaxSGE: 30, MaxInline: 4096, MaxRdAtom: 16,
		CM: true, CQOverrun: true, AccessEvents: true, CommEst: true, RandomKeys: true, Faults: noFaults{}, Clock: noClock{},
		Device: ^verbs.DeviceCaps(0), MaxSRQ: 1, MaxAH: 1, MaxMcastQP: 8, CQResize: true, LastWQE: true, CheckedHandles: true,
		CMUDP: true, CMMcast: true, Devices: noDevices{}, Persistent: func(int) (*mem.Arena, error) { return nil, nil },
		ODP: verbs.ODPCaps{General: ^verbs.ODPGeneral(0), RC: ^verbs.ODPOps(0)}, DMABuf: func(int) (*DMABuf, error) { return nil, nil },
	}
	for _, s := range Cases() {
		if why := s.lacks(&full); why != "" {
			t.Errorf("%s is not applicable to a pair that can do everything: %s", s.Name, why)
		}
		if why := s.lacks(&Caps{}); !strings.HasSuffix(why, "queue pairs") {
			t.Errorf("%s on a pair without queue pairs: %q", s.Name, why)
		}
		known := full
		known.Deviations = map[string]string{s.Name: "vendor bug 1"}
		if why := s.lacks(&known); !strings.Contains(why, "vendor bug 1") {
			t.Errorf("%s with a known deviation: %q", s.Name, why)
		}
	}
	for what, take := range map[string]func(*Caps){
		"SEND": func(c *Caps) { c.Opcodes &^= verbs.Opcodes(verbs.WRSend) }, "path MTU": func(c *Caps) { c.MTU = verbs.MTU256 },
		"scatter-gather": func(c *Caps) { c.MaxSGE = 1 }, "inline": func(c *Caps) { c.MaxInline = 0 },
		"outstanding": func(c *Caps) { c.MaxRdAtom = 0 }, "fault script": func(c *Caps) { c.Faults = nil },
		"virtual clock": func(c *Caps) { c.Clock = nil }, "connection manager": func(c *Caps) { c.CM = false },
		"overrun": func(c *Caps) { c.CQOverrun = false }, "violations": func(c *Caps) { c.AccessEvents = false },
		"LAST_WQE": func(c *Caps) { c.LastWQE = false }, "unchecked": func(c *Caps) { c.CheckedHandles = false },
		"shared receive": func(c *Caps) { c.MaxSRQ = 0 }, "address handles": func(c *Caps) { c.MaxAH = 0 },
		"multicast group ": func(c *Caps) { c.MaxMcastQP = 0 }, "be resized": func(c *Caps) { c.CQResize = false },
		"survives": func(c *Caps) { c.Persistent = nil }, "unplugged": func(c *Caps) { c.Devices = nil },
		"on demand, or": func(c *Caps) { c.ODP.General = verbs.ODPSupport }, "ATOMIC on memory": func(c *Caps) { c.ODP.RC &^= verbs.ODPAtomic },
		"of another device": func(c *Caps) { c.DMABuf = nil },
		"port space UDP":    func(c *Caps) { c.CMUDP = false }, "joins no": func(c *Caps) { c.CMMcast = false },
		"no UD": func(c *Caps) {
			c.QPTypes = []verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTXRCSend, verbs.QPTXRCRecv}
		},
		"type 2B": func(c *Caps) { c.Device &^= verbs.CapMemWindow2B }, "visibility": func(c *Caps) { c.Device &^= verbs.CapFlushGlobal },
		"established": func(c *Caps) { c.CommEst = false }, "random": func(c *Caps) { c.RandomKeys = false },
	} {
		c := full
		take(&c)
		n := 0
		for _, s := range Cases() {
			if why := s.lacks(&c); why != "" {
				n++
				if !strings.Contains(why, what) {
					t.Errorf("%s without %q: %s", s.Name, what, why)
				}
			}
		}
		if n == 0 || n == len(Cases()) {
			t.Errorf("without %q %d of %d cases are not applicable", what, n, len(Cases()))
		}
	}
}

type noFaults struct{ Faults }
type noDevices struct{ Devices }
type noClock struct{ Clock }

func TestReport(t *testing.T) {
	r := &Report{Pair: "x", A: "soft soft0", B: "soft soft1", MTU: 4096, Results: []Result{
		{Name: "one", Rule: "r1", Verdict: Passed}, {Name: "two", Rule: "r2", Verdict: Failed, Reason: "see the log"},
		{Name: "three", Rule: "r3", Verdict: NotApplicable, Reason: "no clock"},
	}}
	s := r.String()
	for _, want := range []string{"3 cases: 1 passed, 1 failed, 1 not applicable", "two", "no clock", "[r3]"} {
		if !strings.Contains(s, want) {
			t.Errorf("the table lacks %q:\n%s", want, s)
		}
	}
	path := filepath.Join(t.TempDir(), "x.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.String() != s {
		t.Errorf("the report came back as\n%s", back.String())
	}
}

func TestInfoRoundTrip(t *testing.T) {
	want := Info{QPN: 0xabcdef, PSN: 0x123456, GID: verbs.GID{1, 15: 9}, LID: 7}
	got, err := ParseInfo(want.Append(nil))
	if err != nil || got != want {
		t.Errorf("came back as %+v (%v)", got, err)
	}
}

// A record from a peer is untrusted: accepted input encodes to the same bytes, and any other is
// refused.
func FuzzParseInfo(f *testing.F) {
	f.Add(Info{QPN: 1, PSN: 2, GID: verbs.GID{3}}.Append(nil))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, infoSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseInfo(b)
		if err != nil {
			return
		}
		if i.QPN > maxPSN || i.PSN > maxPSN || !bytes.Equal(i.Append(nil), b) {
			t.Errorf("% x parsed as %+v", b, i)
		}
	})
}

// The pattern never contains the poison; otherwise a write could not be detected.
func TestPatternIsNotPoison(t *testing.T) {
	for seed := range 50 {
		b := make([]byte, 4096)
		fill(b, seed)
		if at := bytes.IndexByte(b, 0xdb); at >= 0 {
			t.Fatalf("the pattern of seed %d has a poison byte at %d", seed, at)
		}
	}
}
