package verbstest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Verdict is the outcome of a case.
type Verdict string

// The verdicts.
const (
	Passed        Verdict = "passed"
	Failed        Verdict = "failed"
	NotApplicable Verdict = "not applicable"
)

// Result is one case of a run.
type Result struct {
	Topic   string  `json:"topic"`
	Name    string  `json:"name"`
	Rule    string  `json:"rule"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"` // why not passed
	Micros  int64   `json:"micros"`           // real time taken
}

// Report is one run of the suite.
type Report struct {
	Pair    string   `json:"pair"`
	A       string   `json:"a"` // provider and device
	B       string   `json:"b"`
	MTU     uint32   `json:"mtu"`              // path MTU, bytes
	Device  bool     `json:"device,omitempty"` // both ends are kernel devices
	Results []Result `json:"results"`
}

// Count returns the number of cases with verdict v.
func (r *Report) Count(v Verdict) (n int) {
	for _, x := range r.Results {
		if x.Verdict == v {
			n++
		}
	}
	return n
}

// String returns the table: the sums, then the cases that did not pass.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "conformance of %s (%s to %s, path MTU %d): %d cases: %d passed, %d failed, %d not applicable",
		r.Pair, r.A, r.B, r.MTU, len(r.Results), r.Count(Passed), r.Count(Failed), r.Count(NotApplicable))
	for _, v := range []Verdict{Failed, NotApplicable} {
		for _, x := range r.Results {
			if x.Verdict == v {
				fmt.Fprintf(&b, "\n  %-14s %-52s %s [%s]", v, x.Name, x.Reason, x.Rule)
			}
		}
	}
	return b.String()
}

// Write writes the report as JSON to the named file.
func (r *Report) Write(path string) error {
	j, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(j, '\n'), 0o644)
}
