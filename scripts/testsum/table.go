package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// table prints the failures and their output, then the results of the steps, then the tests that
// were not run with their reasons, then the names of the failures, then the closing line; it
// reports whether the run failed. A run without a single test has failed.
func table(out io.Writer, records []record) (failed bool) {
	var sum tally
	width, notRun := len("step"), 0
	var took float64 // from the first step's beginning to the last one's end: some run beside others
	for _, r := range records {
		took = max(took, r.Began.Sub(records[0].Began).Seconds()+r.Seconds)
		width = max(width, len(r.Step))
		sum.Failures = append(sum.Failures, r.Failures...)
	}
	again(out, sum.Failures)
	fmt.Fprintf(out, "\n%-*s  %8s  %9s  %7s  %7s  %7s  %10s\n", width, "step", "seconds", "processor", "passed", "failed", "skipped", "not applic.")
	for _, r := range records {
		if r.NotRun != "" {
			notRun++
			fmt.Fprintf(out, "%-*s  not run: %s\n", width, r.Step, r.NotRun)
			continue
		}
		fmt.Fprintf(out, "%-*s  %8.1f  %9.1f  %7d  %7d  %7d  %10d\n", width, r.Step, r.Seconds, r.Processor,
			r.Passed, r.Failed, len(r.Skipped), len(r.NotApplicable))
		sum.Passed += r.Passed
		sum.Failed += r.Failed
		sum.Skipped = append(sum.Skipped, r.Skipped...)
		sum.NotApplicable = append(sum.NotApplicable, r.NotApplicable...)
	}
	list(out, "skipped", sum.Skipped)
	list(out, "not applicable", sum.NotApplicable)
	if len(sum.Failures) > 0 {
		fmt.Fprintln(out)
	}
	for _, f := range sum.Failures {
		fmt.Fprintf(out, "FAILED: %s\n", f)
	}
	steps := len(records) - notRun
	fmt.Fprintf(out, "\n%d steps run in %.0f s, %d not run; %d tests skipped, %d cases not applicable\n",
		steps, took, notRun, len(sum.Skipped), len(sum.NotApplicable))
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n",
		sum.Passed, sum.Failed, len(sum.Skipped)+len(sum.NotApplicable)+notRun)
	return sum.Failed > 0 || sum.Passed == 0
}

// list prints skips by package and reason, in order of appearance, each with its number and the
// tests; a test that was skipped in several steps is named once.
func list(out io.Writer, title string, skips []skip) {
	if len(skips) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	type why struct{ pkg, reason string }
	var order []why
	times, tests := map[why]int{}, map[why][]string{}
	for _, s := range skips {
		w := why{short(s.Package), strings.TrimPrefix(s.Reason, notApplicable+": ")}
		if times[w]++; times[w] == 1 {
			order = append(order, w)
		}
		if !slices.Contains(tests[w], s.Test) {
			tests[w] = append(tests[w], s.Test)
		}
	}
	for _, w := range order {
		fmt.Fprintf(out, "  %d x %s: %s: %s\n", times[w], w.pkg, w.reason, strings.Join(tests[w], " "))
	}
}

// again repeats the failures with their output, which are hard to find in a long run. It comes
// before the table because the skips after the table are long: the end of the output then
// contains both.
func again(out io.Writer, failures []failure) {
	for _, f := range failures {
		fmt.Fprintf(out, "\nFAILED: %s\n%s", f, f.Output)
	}
}

// module is the uninformative prefix of a package's path.
const module = "github.com/verbena-rdma/verbena/"

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }
