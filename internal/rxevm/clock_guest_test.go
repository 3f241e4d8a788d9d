//go:build linux && verbena_rxevm

package rxevm

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Rule: where the time source is the processors' counter, it runs at the host's rate: a second
// there is one here. (Reading the machine's clock takes a while, which bounds the accuracy.)
func keepsTime(t *testing.T, m *Machine) {
	if clock() == clockHPET {
		own, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
		if name := strings.TrimSpace(string(own)); counts && err == nil && (name == "tsc" || name == "kvm-clock") {
			t.Fatalf("this host's clock is %s, and the machine's would be the HPET", name)
		}
		t.Skip("this host's own clock is not its processors' counter: the machine's is the HPET")
	}
	ask := func(script string) string {
		t.Helper()
		out, err := m.Shell(t.Context(), script)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	if got := ask("cat /sys/devices/system/clocksource/clocksource0/current_clocksource"); !strings.HasPrefix(got, "tsc") {
		t.Fatalf("the machine's clock is %q", got)
	}
	look := func() (there time.Duration, before, after time.Time) {
		t.Helper()
		before = time.Now()
		ns, err := strconv.ParseInt(ask("date +%s%N"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ns), before, time.Now()
	}
	from, b0, a0 := look()
	<-time.After(3 * time.Second) // both clocks run for this time
	to, b1, a1 := look()
	const slack = 50 * time.Millisecond // the counter's rate is known far more accurately
	if went := to - from; went < b1.Sub(a0)-slack || went > a1.Sub(b0)+slack {
		t.Errorf("%v passed in the machine, and from %v to %v here", went, b1.Sub(a0), a1.Sub(b0))
	}
}
