package rpma

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: testdata/unit-tests.txt names, for each rule of librpma's unit tests, a test of this package or a
// reason, and no rule twice.
func TestRulesOfLibrpmasUnitTests(t *testing.T) {
	tests := map[string]bool{}
	for _, e := range must.Get(os.ReadDir("."))(t) {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.SkipObjectResolution))(t)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/unit-tests.txt"))(t))) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 || seen[f[0]+f[1]] {
			t.Errorf("%q is no line of three words, or a rule for the second time", line)
			continue
		}
		seen[f[0]+f[1]] = true
		if reason, none := strings.CutPrefix(f[2], "none: "); none != (reason != f[2]) || !none && (!strings.HasPrefix(f[2], "Test") || !tests[f[2]]) || none && reason == "" {
			t.Errorf("the rule %s of %s has %q, want a test of this package or a reason", f[1], f[0], f[2])
		}
	}
	const all = 327
	if len(seen) != all {
		t.Errorf("the table has %d rules, want %d", len(seen), all)
	}
}
