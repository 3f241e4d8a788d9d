package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tally holds the results of tests.
type tally struct {
	Passed, Failed int
	Skipped        []skip
	NotApplicable  []skip // skips with this reason: the pair lacks a requirement of the case
	Failures       []failure
}

// failure is a failed test, package or step with its output.
type failure struct{ Package, Test, Output string }

// String returns the package and the test; either may be empty.
func (f failure) String() string { return strings.TrimSpace(short(f.Package) + " " + f.Test) }

// failureBytes is how much of a failure's output is repeated at the end, from its beginning and
// from its end. The whole output is printed where it occurred.
const failureBytes = 3000

// fails counts a failure and keeps its output.
func (t *tally) fails(n name, output string) {
	t.Failed++
	if len(output) > 2*failureBytes {
		output = output[:failureBytes] + "\n[...]\n" + output[len(output)-failureBytes:]
	}
	t.Failures = append(t.Failures, failure{n.pkg, n.test, output})
}

// skip is a test that was not run.
type skip struct{ Package, Test, Reason string }

// event is one line of go test -json (go doc test2json), and of the build
// before it (go help buildjson).
type event struct {
	Action, Package, Test, Output string
}

// name is a test of a package.
type name struct{ pkg, test string }

// counter follows the events of one go test.
type counter struct {
	out     io.Writer
	tests   map[name]string   // verdict; empty while it runs
	output  map[name][]string // of tests without a verdict; with an empty test, that of the package
	failed  map[name]string   // output of failing tests
	failing map[string]bool   // packages in which a test failed
	tally   tally
}

// count reads a stream of events to its end, prints a line for each package and the output of
// failing tests, and counts; with names it also prints the passed tests. It prints a line that is
// not an event.
func count(r io.Reader, out io.Writer, names bool) (tally, error) {
	c := counter{out: out, tests: map[name]string{}, output: map[name][]string{}, failed: map[name]string{}, failing: map[string]bool{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			c.take(e)
		} else if line != "" {
			fmt.Fprint(out, line)
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return c.tally, err
		}
	}
	for _, n := range c.leaves() {
		if names {
			fmt.Fprintf(out, "passed\t%s %s\n", short(n.pkg), n.test)
		}
	}
	return c.tally, nil
}

func (c *counter) take(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "run":
		c.tests[n] = ""
	case "output":
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok  \t") || strings.HasPrefix(e.Output, "FAIL\t")) {
			fmt.Fprint(c.out, e.Output)
		} else {
			c.output[n] = append(c.output[n], e.Output)
		}
	case "pass", "skip", "fail":
		if e.Test == "" {
			c.end(e)
			return
		}
		c.tests[n] = e.Action
		switch e.Action {
		case "skip":
			c.skip(n)
		case "fail":
			c.failing[e.Package] = true
			c.failed[n] = strings.Join(c.output[n], "")
			fmt.Fprint(c.out, c.failed[n])
		}
		delete(c.output, n)
	}
}

// end handles the verdict on a package. A failure includes the output of the package and of the
// tests that never ended, which contains the panic or the timeout.
func (c *counter) end(e event) {
	if e.Action == "fail" {
		died := 0
		for n, verdict := range c.tests {
			if n.pkg == e.Package && verdict == "" {
				c.tests[n] = "died"
				died++
			}
		}
		if died > 0 || !c.failing[e.Package] {
			var said strings.Builder
			for _, n := range slices.SortedFunc(maps.Keys(c.output), byName) {
				if n.pkg == e.Package {
					said.WriteString(strings.Join(c.output[n], ""))
				}
			}
			fmt.Fprint(c.out, said.String())
			c.tally.fails(name{pkg: e.Package}, said.String())
		} else {
			// Counted with its tests; they explain the package's own output (a leak).
			fmt.Fprint(c.out, strings.Join(c.output[name{pkg: e.Package}], ""))
		}
	}
	maps.DeleteFunc(c.output, func(n name, _ []string) bool { return n.pkg == e.Package })
}

func byName(a, b name) int { return strings.Compare(a.pkg+"\x00"+a.test, b.pkg+"\x00"+b.test) }

// where matches the prefix of a message of package testing: " file_test.go:12: ".
var where = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// notApplicable begins the reason of a conformance case that the pair of
// providers cannot run.
const notApplicable = "not applicable"

func (c *counter) skip(n name) {
	// The last message is the reason; its further lines are indented more.
	var reason []string
	for _, line := range strings.SplitAfter(strings.Join(c.output[n], ""), "\n") {
		switch text := strings.TrimSpace(line); {
		case where.MatchString(line):
			reason = []string{strings.TrimSpace(where.ReplaceAllString(line, ""))}
		case text == "" || strings.HasPrefix(text, "--- ") || strings.HasPrefix(text, "=== "):
		case len(reason) > 0 && strings.HasPrefix(line, "        "):
			reason = append(reason, text)
		}
	}
	s := skip{n.pkg, n.test, strings.Join(reason, " ")}
	if s.Reason == "" {
		s.Reason = "no reason given"
	}
	if strings.HasPrefix(s.Reason, notApplicable) {
		c.tally.NotApplicable = append(c.tally.NotApplicable, s)
	} else {
		c.tally.Skipped = append(c.tally.Skipped, s)
	}
}

// leaves counts the tests that have no subtests, and those that failed themselves, and returns
// those that passed, sorted.
func (c *counter) leaves() (passed []name) {
	parents, failedBelow := map[name]bool{}, map[name]bool{}
	var failed []name
	for n, verdict := range c.tests {
		for t := n.test; ; {
			i := strings.LastIndexByte(t, '/')
			if i < 0 {
				break
			}
			t = t[:i]
			parents[name{n.pkg, t}] = true
			if verdict == "fail" {
				failedBelow[name{n.pkg, t}] = true
			}
		}
	}
	for n, verdict := range c.tests {
		switch {
		case verdict == "pass" && !parents[n]:
			c.tally.Passed++
			passed = append(passed, n)
		case verdict == "fail" && !failedBelow[n]:
			failed = append(failed, n)
		}
	}
	slices.SortFunc(passed, byName)
	slices.SortFunc(failed, byName)
	for _, n := range failed {
		c.tally.fails(n, c.failed[n])
	}
	return passed
}
