package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// known deviations have this text before their reason (verbs/verbstest/spec.go, lacks).
const knownDeviation = "known deviation: "

// deviations reads the reports of the conformance suite in a folder.
func deviations(folder string) (d Deviations) {
	if folder == "" {
		explainAll(&d, "the conformance suite did not run before (flag -conformance)")
		return d
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the conformance suite has left no report")
	}
	if err != nil {
		explainAll(&d, err.Error())
		return d
	}
	runs, cases, skipped := []Run{}, []Case{}, []Skipped{}
	add := func(c Case) { // or another pair of one that is there
		i := slices.IndexFunc(cases, func(x Case) bool { return x.State == c.State && x.Case == c.Case && x.Reason == c.Reason })
		if i < 0 {
			cases = append(cases, c)
		} else {
			cases[i].Pairs = append(cases[i].Pairs, c.Pairs...)
		}
	}
	for _, file := range files {
		var r verbstest.Report
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			explainAll(&d, err.Error())
			return d
		}
		run := Run{Pair: r.Pair, MTU: r.MTU}
		reasons := map[string]int{}
		for _, x := range r.Results {
			why, isKnown := strings.CutPrefix(x.Reason, knownDeviation)
			switch {
			case x.Verdict == verbstest.Passed:
				run.Passed++
			case x.Verdict == verbstest.Failed:
				run.Failed++
				add(Case{State: "new", Case: x.Name, Pairs: []string{r.Pair}, Reason: x.Reason})
			case isKnown:
				run.Known++
				add(Case{State: "known", Case: x.Name, Pairs: []string{r.Pair}, Reason: why})
			default:
				run.Skipped++
				reasons[x.Reason]++
			}
		}
		runs = append(runs, run)
		for why, n := range reasons {
			skipped = append(skipped, Skipped{Pair: r.Pair, Cases: n, Reason: why})
		}
	}
	slices.SortStableFunc(cases, func(a, b Case) int { return -cmp.Compare(a.State, b.State) }) // new ones first
	slices.SortFunc(skipped, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(a.Pair, b.Pair), -cmp.Compare(a.Cases, b.Cases), cmp.Compare(a.Reason, b.Reason))
	})
	d.Runs, d.Cases, d.Reasons = known(runs), known(cases), known(skipped)
	return d
}
