//go:build verbena_model

package model

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Large says that the large worlds are searched too, which takes minutes.
var Large = os.Getenv("VERBENA_MODEL") == "all"

// alone fails the test if this process runs other tests than models. Other tests may leave timers
// behind, whose goroutines call hooks.
func alone(t *testing.T) {
	t.Helper()
	if run := flag.Lookup("test.run").Value.String(); !strings.HasPrefix(strings.TrimPrefix(run, "^"), "TestModel") {
		t.Fatalf("models are not run beside other tests: use -run '^TestModel', not %q", run)
	}
}

// Holds fails the test if the world breaks a rule.
func Holds(t *testing.T, name string, build func() World) {
	t.Helper()
	alone(t)
	stats, err := Explore(build)
	if t.Logf("%s: %v", name, stats); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// Breaks fails the test unless the world breaks a rule whose message matches want. It shows that
// the world notices a mistake.
func Breaks(t *testing.T, name, want string, build func() World) {
	t.Helper()
	alone(t)
	stats, err := Explore(build)
	if err == nil {
		t.Errorf("%s: no rule breaks: %v", name, stats)
		return
	}
	rule, trace, _ := strings.Cut(err.Error(), "\n")
	if t.Logf("%s: after %d steps: %s", name, strings.Count(trace, "\n"), rule); !regexp.MustCompile(want).MatchString(rule) {
		t.Errorf("%s: it breaks another rule than %q: %v", name, want, err)
	}
}
