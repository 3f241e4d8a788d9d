package verbstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: a case is marked unless it passed on a device, and the mark does not affect the lookup of
// its row.
func TestDocumentMarksWhatNoDeviceHasProven(t *testing.T) {
	names := Cases()
	on, off := names[0].Name, names[1].Name
	run := func(pair string, device bool, verdicts ...Verdict) *Report {
		r := &Report{Pair: pair, Device: device}
		for i, s := range Cases() {
			v := Passed
			if i < len(verdicts) {
				v = verdicts[i]
			}
			r.Results = append(r.Results, Result{Name: s.Name, Verdict: v, Reason: "no reason"})
		}
		return r
	}
	library, device := run("a_library", false), run("the_device", true, Passed, NotApplicable)
	text := Document([]*Report{device, library})
	if !strings.Contains(text, "\n| "+on+" | ") {
		t.Errorf("%s passed on a device and is not there unmarked", on)
	}
	if !strings.Contains(text, "\n| "+off+" "+unproven+" | ") {
		t.Errorf("%s passed on a library only and is not marked", off)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(OutEnv, "")
	Documented(t, library, page)
	Documented(t, device, page)
}
