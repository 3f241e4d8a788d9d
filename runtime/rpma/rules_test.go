package rpma

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// testNames are the test functions of this package, each with the strings that its file has, among which the names
// of its subtests are.
type testNames map[string][]string

// namesOfTests reads the tests of this package, for all build tags.
func namesOfTests(t *testing.T) testNames {
	t.Helper()
	names := testNames{}
	for _, e := range must.Get(os.ReadDir("."))(t) {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.SkipObjectResolution))(t)
		var texts []string
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				texts = append(texts, underscored(must.Get(strconv.Unquote(l.Value))(t)))
			}
			return true
		})
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = texts
			}
		}
	}
	return names
}

// underscored writes a name as package testing does.
func underscored(s string) string { return strings.ReplaceAll(s, " ", "_") }

// has reports whether there is a test, or a subtest, of this name. The name of a subtest is one string of the file,
// or two after each other; where beds run the test, the bed comes first.
func (n testNames) has(name string) bool {
	test, sub, isSub := strings.Cut(name, "/")
	texts, ok := n[test]
	if !ok || !isSub {
		return ok
	}
	sub = strings.TrimPrefix(sub, "soft/")
	for _, a := range texts {
		rest, found := strings.CutPrefix(sub, a)
		for _, b := range texts {
			if found && a != "" && (rest == "" || b != "" && (rest == b || rest == "/"+b)) {
				return true
			}
		}
	}
	return false
}

// tableLines returns the lines of a table in testdata.
func tableLines(t *testing.T, name string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/" + name))(t))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Rule: testdata/unit-tests.txt names, for each rule of librpma's unit tests, a test or subtest of this package or
// a reason, and no rule twice.
func TestRulesOfLibrpmasUnitTests(t *testing.T) {
	tests := namesOfTests(t)
	seen := map[string]bool{}
	for _, line := range tableLines(t, "unit-tests.txt") {
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 || seen[f[0]+f[1]] {
			t.Errorf("%q is no line of three words, or a rule for the second time", line)
			continue
		}
		seen[f[0]+f[1]] = true
		if reason, none := strings.CutPrefix(f[2], "none: "); none && reason == "" || !none && !tests.has(f[2]) {
			t.Errorf("the rule %s of %s has %q, want a test of this package or a reason", f[1], f[0], f[2])
		}
	}
	const all = 358
	if len(seen) != all {
		t.Errorf("the table has %d rules, want %d", len(seen), all)
	}
}

// Rule: testdata/errors.txt has each function of librpma (scripts/coverage/functions.txt); each error of its manual has
// ours, of a type, with tests of this package, or a reason.
func TestErrorsOfLibrpmasManual(t *testing.T) {
	tests := namesOfTests(t)
	functions := map[string]bool{}
	for line := range strings.Lines(string(must.Get(os.ReadFile("../../scripts/coverage/functions.txt"))(t))) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, "rpma_") {
			functions[name] = false
		}
	}
	codes := regexp.MustCompile(`^(UNKNOWN|NOSUPP|PROVIDER|NOMEM|INVAL|NO_COMPLETION|NO_EVENT|AGAIN|SHARED_CHANNEL|NOT_SHARED_CHNL|-)$`)
	ours := regexp.MustCompile(`^(Err(NotSupported|Provider|NoMemory|Invalid|NoCompletion|NoEvent|SharedChannel|NotSharedChannel)|\*verbs\.OpError|WCLocQPOpErr|the event Lost|nothing)\b`)
	seen := map[string]bool{}
	for _, line := range tableLines(t, "errors.txt") {
		f := strings.Split(line, " | ")
		name, code, _ := strings.Cut(f[0], " ")
		if _, known := functions[name]; len(f) != 4 || !known || !codes.MatchString(code) || seen[f[0]+f[1]] {
			t.Errorf("%q has not four parts, or no function of librpma with a code, or stands for the second time", line)
			continue
		}
		functions[name], seen[f[0]+f[1]] = true, true
		if reason, none := strings.CutPrefix(f[2], "none: "); none {
			if reason == "" || f[3] != "-" {
				t.Errorf("%q has no reason, or a test nevertheless", line)
			}
			continue
		}
		if !ours.MatchString(f[2]) {
			t.Errorf("%q has no error of this package", line)
		}
		for _, name := range strings.Fields(f[3]) {
			if !tests.has(name) {
				t.Errorf("%q names the test %s, which does not exist", line, name)
			}
		}
	}
	for name, has := range functions {
		if !has {
			t.Errorf("%s has no line", name)
		}
	}
	const all = 84
	if len(functions) != all {
		t.Errorf("there are %d functions, want %d", len(functions), all)
	}
}
