package main

import (
	"fmt"
	"io"
	"strings"
)

// table prints what the steps did, then each test that was not run with its
// reason, then the closing line; it reports whether the run failed. A run
// without a single test has failed.
func table(out io.Writer, records []record) (failed bool) {
	var sum tally
	width, notRun := len("step"), 0
	for _, r := range records {
		width = max(width, len(r.Step))
	}
	fmt.Fprintf(out, "\n%-*s  %8s  %7s  %7s  %7s  %10s\n", width, "step", "seconds", "passed", "failed", "skipped", "not applic.")
	for _, r := range records {
		if r.NotRun != "" {
			notRun++
			fmt.Fprintf(out, "%-*s  not run: %s\n", width, r.Step, r.NotRun)
			continue
		}
		fmt.Fprintf(out, "%-*s  %8.1f  %7d  %7d  %7d  %10d\n", width, r.Step, r.Seconds,
			r.Passed, r.Failed, len(r.Skipped), len(r.NotApplicable))
		sum.Passed += r.Passed
		sum.Failed += r.Failed
		sum.Skipped = append(sum.Skipped, r.Skipped...)
		sum.NotApplicable = append(sum.NotApplicable, r.NotApplicable...)
	}
	list(out, "skipped", sum.Skipped)
	list(out, "not applicable", sum.NotApplicable)
	steps := len(records) - notRun
	fmt.Fprintf(out, "\n%d steps run, %d not run; %d tests skipped, %d cases not applicable\n",
		steps, notRun, len(sum.Skipped), len(sum.NotApplicable))
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n",
		sum.Passed, sum.Failed, len(sum.Skipped)+len(sum.NotApplicable)+notRun)
	return sum.Failed > 0 || sum.Passed == 0
}

// list prints skips in order of appearance; one that came in several steps is
// printed once, with its number.
func list(out io.Writer, title string, skips []skip) {
	if len(skips) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	times := map[skip]int{}
	for _, s := range skips {
		times[s]++
	}
	for _, s := range skips {
		if n := times[s]; n > 0 {
			fmt.Fprintf(out, "  %d x %s %s: %s\n", n, short(s.Package), s.Test, strings.TrimPrefix(s.Reason, notApplicable+": "))
			delete(times, s)
		}
	}
}

// module is the part of a package's path that says nothing here.
const module = "github.com/verbena-rdma/verbena/"

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }
