package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stream writes events as go test -json does: "action test: output".
func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		head, output, _ := strings.Cut(e, ": ")
		action, test, _ := strings.Cut(head, " ")
		fmt.Fprintf(&b, `{"Action":%q,"Package":"p","Test":%q,"Output":%q}`+"\n", action, test, output)
	}
	return b.String()
}

func counted(t *testing.T, events ...string) (tally, string) {
	t.Helper()
	var out bytes.Buffer
	c, err := count(strings.NewReader(stream(events...)), &out, false)
	if err != nil {
		t.Fatal(err)
	}
	return c, out.String()
}

// A test with subtests is not counted beside them; failures are printed and passes are not.
func TestCountsLeaves(t *testing.T) {
	c, out := counted(t,
		"run A", "run A/b", "output A/b:     x_test.go:1: in b\n", "pass A/b",
		"run A/c", "output A/c:     x_test.go:2: in c\n", "fail A/c", "fail A", "run B", "pass B", "fail ")
	if c.Passed != 2 || c.Failed != 1 || len(c.Skipped) != 0 {
		t.Errorf("A/b and B passed and A/c failed, counted %+v", c)
	}
	if !strings.Contains(out, "in c") || strings.Contains(out, "in b") {
		t.Errorf("the output of A/c alone is wanted, got %q", out)
	}
}

// The output of a package beside that of a failed test is printed, and is no further failure.
func TestPackageSpeaksBesideItsTests(t *testing.T) {
	c, out := counted(t, "run A", "output A:     x_test.go:1: in a\n", "fail A", "output : leak: left behind\n", "fail ")
	if c.Failed != 1 || !strings.Contains(out, "left behind") {
		t.Errorf("counted %+v, printed %q", c, out)
	}
}

// With names, count prints the leaves that passed.
func TestNamesWhatPassed(t *testing.T) {
	var out bytes.Buffer
	_, err := count(strings.NewReader(stream("run A", "run A/c", "pass A/c", "run A/b", "pass A/b", "pass A", "run F", "fail F", "fail ")), &out, true)
	if err != nil || !strings.HasSuffix(out.String(), "passed\tp A/b\npassed\tp A/c\n") || strings.Contains(out.String(), "p F") {
		t.Errorf("%v, printed %q; want A/b and A/c named, and nothing else", err, out.String())
	}
}

// A parent that fails itself is a failure although its subtests passed.
func TestCountsFailingParent(t *testing.T) {
	if c, _ := counted(t, "run A", "run A/b", "pass A/b", "fail A", "fail "); c.Passed != 1 || c.Failed != 1 {
		t.Errorf("A/b passed and A failed, counted %+v", c)
	}
}

// A package that fails after its tests passed (a leak, an exit) is a failure, with its output.
func TestCountsFailingPackage(t *testing.T) {
	c, out := counted(t, "run A", "pass A", "output : leak: left behind\n", "fail ")
	if c.Passed != 1 || c.Failed != 1 || !strings.Contains(out, "left behind") {
		t.Errorf("one passed and the package failed, counted %+v, printed %q", c, out)
	}
}

// A test that never ended (a panic, a timeout) is a failure, with its output, also where another
// test failed before.
func TestCountsTestThatDied(t *testing.T) {
	c, out := counted(t, "run F", "fail F", "run A", "output A: panic: oh\n", "fail ")
	if c.Failed != 2 || !strings.Contains(out, "panic: oh") {
		t.Errorf("F failed and A died, counted %+v, printed %q", c, out)
	}
}

func TestSkipsHaveReasons(t *testing.T) {
	c, _ := counted(t,
		"run A", "output A: === RUN   A\n", "output A:     x_test.go:7: log\n", "output A:     x_test.go:9: no NUMA\n",
		"output A:         here\n", "output A: --- SKIP: A (0.00s)\n", "skip A",
		"run B", "output B:     x_test.go:3: not applicable: no SRQ\n", "skip B", "run C", "skip C")
	if len(c.Skipped) != 2 || c.Skipped[0].Reason != "no NUMA here" || c.Skipped[1].Reason != "no reason given" {
		t.Errorf("skipped %+v", c.Skipped)
	}
	if len(c.NotApplicable) != 1 || c.NotApplicable[0].Reason != "not applicable: no SRQ" {
		t.Errorf("not applicable %+v", c.NotApplicable)
	}
}

// The steps are recorded one by one and summed up by the table.
func TestStepsToTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "steps")
	do := func(args ...string) (bool, string) {
		t.Helper()
		var out bytes.Buffer
		failed, err := command(file, args, &out)
		if err != nil {
			t.Fatal(err)
		}
		return failed, out.String()
	}
	do("check", "version", "--", "go", "version")
	do("notrun", "race", "no C compiler")
	failed, out := do("table")
	if failed || !strings.HasSuffix(out, "\n1 passed, 0 failed, 1 skipped\n") || !strings.Contains(out, "not run: no C compiler") {
		t.Errorf("failed %v, table:\n%s", failed, out)
	}
	do("check", "nonsense", "--", "go", "nonsense")
	if failed, out = do("table"); !failed || !strings.HasSuffix(out, "\n1 passed, 1 failed, 1 skipped\n") {
		t.Errorf("failed %v, table:\n%s", failed, out)
	}
}

// Failures are repeated before the table, with their output, and named after the skips; tests
// that are skipped for one reason are one line.
func TestTableSaysAgainWhatFailed(t *testing.T) {
	c, _ := counted(t, "run A", "output A:     x_test.go:1: no NUMA\n", "skip A", "run B", "output B:     x_test.go:2: no NUMA\n", "skip B",
		"run F", "output F:     x_test.go:3: "+strings.Repeat("long ", 2*failureBytes)+"the end\n", "fail F", "fail ")
	var out bytes.Buffer
	table(&out, []record{{Step: "s", tally: c}, {Step: "s again", tally: c}})
	if want := "  4 x p: no NUMA: A B\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in:\n%s", want, &out)
	}
	said, rest, _ := strings.Cut(out.String(), "\nstep ")
	_, said, _ = strings.Cut(said, "\nFAILED: p F\n    x_test.go:3: long ")
	if !strings.Contains(said, "the end\n") || len(said) > 5*failureBytes {
		t.Errorf("F is not said again, or not shortened, before the table:\n%s", &out)
	}
	if _, end, _ := strings.Cut(rest, "no NUMA: A B\n"); !strings.Contains(end, "\nFAILED: p F\n") {
		t.Errorf("F is not named behind the skips:\n%s", &out)
	}
}

// A run without tests has failed, and a wrong command line is an error.
func TestNothingIsNoSuccess(t *testing.T) {
	if !table(&bytes.Buffer{}, nil) {
		t.Error("a run without tests passed")
	}
	for _, args := range [][]string{nil, {"check", "x"}, {"what", "x", "y"}, {"fuzz", "x", "soon"}} {
		if _, err := command(filepath.Join(t.TempDir(), "steps"), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

// fuzz finds the targets itself, runs each, and counts a finding as a failure with its
// description. A process that takes longer than its time to begin gets the time all the same: an
// interrupt before its engine listens would kill it.
func TestFuzzRunsEveryTarget(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module x\ngo 1.26\n",
		"x_test.go": `package x
import ("os"; "slices"; "testing"; "time")
func init() { if !slices.Contains(os.Args, "-test.fuzzworker") { time.Sleep(1500 * time.Millisecond) } }
func FuzzGood(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, i int) {}) }
func FuzzBad(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, i int) { if i != 1 { t.Error("found") } }) }
`} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out bytes.Buffer
	r := record{}
	if err := fuzz(&r, []string{"1s", "./..."}, &out); err != nil {
		t.Fatal(err)
	}
	if r.Passed != 1 || r.Failed != 1 || !strings.Contains(out.String(), "found") || !strings.Contains(out.String(), "FuzzGood\tfuzz: ") {
		t.Errorf("%+v\n%s", r.tally, &out)
	}
}
