package verbs

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"
)

type step struct {
	t        QPType
	from, to QPState
}

// readGolden parses testdata/transitions.golden.
func readGolden(t *testing.T) map[step]needs {
	t.Helper()
	types, states, bits := map[string]QPType{}, map[string]QPState{}, map[string]QPAttrMask{}
	for v, n := range qpTypeNames {
		types[n] = QPType(v)
	}
	for v, n := range qpStateNames {
		states[n] = QPState(v)
	}
	for i, n := range qpAttrNames {
		if n != "" {
			bits[n] = 1 << i
		}
	}
	mask := func(s string) (m QPAttrMask) {
		for _, n := range strings.Fields(s) {
			if n == "-" {
				continue
			}
			b, ok := bits[n]
			if !ok {
				t.Fatalf("golden file: no attribute %q", n)
			}
			m |= b
		}
		return m
	}
	f, err := os.Open("testdata/transitions.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[step]needs{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		cols := strings.Split(line, "|")
		who := strings.Fields(cols[0])
		if len(cols) != 3 || len(who) != 3 {
			t.Fatalf("golden file: bad line %q", line)
		}
		s := step{types[who[0]], states[who[1]], states[who[2]]}
		out[s] = needs{required: mask(cols[1]), optional: mask(cols[2])}
	}
	return out
}

// Every type, every pair of states, and for each: the required attributes,
// without each one of them, with each other bit, and with all optional ones.
func TestTransitionTableIsTheKernels(t *testing.T) {
	golden := readGolden(t)
	checked := 0
	for _, typ := range []QPType{QPTRC, QPTUC, QPTUD, QPTXRCSend, QPTXRCRecv} {
		for from := QPSReset; from <= QPSUnknown; from++ {
			for to := QPSReset; to <= QPSUnknown; to++ {
				n, legal := golden[step{typ, from, to}]
				check := func(mask QPAttrMask, want bool) {
					t.Helper()
					checked++
					err := CheckTransition(typ, from, to, mask|QPMState)
					if (err == nil) != want {
						t.Errorf("%v %v to %v with %v: allowed %v, the golden file says %v (%v)", typ, from, to, mask, err == nil, want, err)
					}
					if err != nil && !errors.Is(err, ErrInvalidTransition) {
						t.Errorf("%v is not ErrInvalidTransition", err)
					}
				}
				check(n.required, legal)
				check(n.required|n.optional, legal)
				for b := QPAttrMask(1 << 1); b != 0; b <<= 1 {
					switch {
					case n.required&b != 0:
						check(n.required&^b, false)
					case n.optional&b != 0:
						check(n.required|b, legal)
					default:
						check(n.required|b, false)
					}
				}
			}
		}
	}
	if checked < 5*8*8*30 {
		t.Fatalf("only %d combinations checked", checked)
	}
}

func TestTransitionNeedsAKnownType(t *testing.T) {
	for _, typ := range []QPType{0, QPTRawPacket, QPTDriver} {
		if err := CheckTransition(typ, QPSReset, QPSInit, connInit); !errors.Is(err, ErrInvalidTransition) {
			t.Errorf("%v: %v", typ, err)
		}
	}
}

// The message names the step and the error in it.
func TestTransitionMessage(t *testing.T) {
	for _, c := range []struct {
		from, to QPState
		mask     QPAttrMask
		want     []string
	}{
		{QPSReset, QPSRTS, 0, []string{"RC", "RESET", "RTS", "no such step"}},
		{QPSReset, QPSInit, QPMPort | QPMAccessFlags, []string{"missing", "PKEY_INDEX"}},
		{QPSReset, QPSInit, connInit | QPMQKey, []string{"not allowed", "QKEY"}},
		{QPSRTS, QPSErr, QPMPort, []string{"not allowed", "PORT"}},
		{QPSUnknown, QPSInit, 0, []string{"no such state"}},
	} {
		err := CheckTransition(QPTRC, c.from, c.to, c.mask)
		if err == nil {
			t.Fatalf("%v to %v with %v was allowed", c.from, c.to, c.mask)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
	}
}
