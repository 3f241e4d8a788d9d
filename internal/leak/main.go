package leak

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// Main runs a package's tests and ends the process: with their exit code, or
// with 1 if they passed and left something behind. It is the whole body of a
// TestMain, and does not return.
func Main(m *testing.M, gauges ...Gauge) {
	os.Exit(run(m.Run, fuzzing, gauges, patience))
}

func run(tests func() int, fuzzing func() bool, gauges []Gauge, wait time.Duration) int {
	before, err := Take(gauges...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := tests()
	if code != 0 || fuzzing() {
		return code // a failed test may well have left something behind
	}
	if err := before.Check(wait); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fuzzing reports whether this is a run of the fuzzing engine, coordinator or worker. The flags
// are parsed by then.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// Check fails t if any resource acquired in it remains when it ends, after all cleanups that were
// registered later. It does not check a failed test, which may well have left something behind.
// It cannot be combined with parallel tests.
func Check(t testing.TB, gauges ...Gauge) {
	t.Helper()
	before, err := Take(gauges...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := before.Check(patience); err != nil {
			t.Error(err)
		}
	})
}
