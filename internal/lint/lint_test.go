package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/verbena-rdma/verbena/internal/must"
)

// root returns the repository: the nearest parent folder with go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.Getwd())(t)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

// The repository keeps its own rules.
func TestRepository(t *testing.T) {
	found := must.Get(Check(os.DirFS(root(t))))(t)
	for _, f := range found {
		t.Error(f)
	}
}

// Each room of the table imports only rooms that come earlier in the table, which lists the
// layers from the bottom.
func TestRoomsPointDown(t *testing.T) {
	seen := []string{}
	for _, r := range layers {
		for _, u := range r.uses {
			if !slices.Contains(seen, u) {
				t.Errorf("%s may import %s, which is not below it", r.path, u)
			}
		}
		seen = append(seen, r.path)
	}
}

// Each rule finds a violation, and nothing in the correct version.
func TestRules(t *testing.T) {
	const doc = "// Package p is.\npackage p\n"
	imports := func(p string) string { return "package p\n\nimport _ \"" + p + "\"\n" }
	for _, c := range []struct {
		name, file, text string
		want             string // part of the one finding; empty for none
	}{
		{"reactor uses a provider", "reactor/a.go", imports(module + "/verbs/soft"), "reactor may not import"},
		{"runtime uses a provider", "runtime/a.go", imports(module + "/verbs/soft"), "runtime may not import"},
		{"reactor's test uses one", "reactor/a_test.go", imports(module + "/verbs/soft"), ""},
		{"reactor uses verbs", "reactor/turn/a.go", imports(module + "/verbs"), ""},
		{"futures uses internal", "futures/a.go", imports(module + "/internal/ring"), "futures may not import"},
		{"verbs looks up", "verbs/a.go", imports(module + "/reactor"), "verbs may not import"},
		{"a test looks up", "reactor/a_test.go", imports(module + "/runtime"), "reactor may not import"},
		{"the suite uses a provider", "verbs/verbstest/a.go", imports(module + "/verbs/soft"), "verbs/verbstest may not import"},
		{"internal looks up", "internal/x/a.go", imports(module + "/verbs"), "internal may not import"},
		{"an example uses internal", "examples/01/a.go", imports(module + "/internal/mem"), "examples may not import"},
		{"the module's own root", "runtime/a.go", imports(module), "runtime may not import"},
		{"an unknown room", "cellar/a.go", "package p\n", "in no room"},
		{"an unknown dependency", "runtime/a.go", imports("example.com/x"), "no dependency of ours"},
		{"a given dependency", "runtime/a.go", imports("github.com/panjf2000/ants/v2"), ""},
		{"a part of one", "internal/x/a.go", imports("golang.org/x/sys/unix"), ""},
		{"a test dependency in code", "runtime/a.go", imports("pgregory.net/rapid"), "no dependency of ours"},
		{"a test dependency in a test", "runtime/a_test.go", imports("pgregory.net/rapid"), ""},
		{"a script uses a dependency", "scripts/x/a.go", imports("golang.org/x/sys/unix"), "standard library alone"},
		{"cgo in runtime", "runtime/a.go", imports("C"), "cgo: only in"},
		{"cgo in ibv", "verbs/ibv/a.go", imports("C"), ""},
		{"unsafe in verbs", "verbs/a.go", imports("unsafe"), "unsafe: only in"},
		{"unsafe in its layout", "verbs/layout_x.go", imports("unsafe"), ""},
		{"unsafe in mem", "internal/mem/a.go", imports("unsafe"), ""},
		{"a bare function", "runtime/a.go", "package p\n\nfunc F() {}\n", "F is exported"},
		{"a bare method", "runtime/a.go", "package p\n\n// T is.\ntype T[V any] struct{}\n\nfunc (t *T[V]) M() {}\n", "M is exported"},
		{"a method of a hidden type", "runtime/a.go", "package p\n\ntype t struct{}\n\nfunc (t) M() {}\n", ""},
		{"a bare type", "runtime/a.go", "package p\n\ntype T int\n", "T is exported"},
		{"a bare type in a group", "runtime/a.go", "package p\n\n// Some.\ntype (\n\tT int\n)\n", "T is exported"},
		{"an interface that tells of its method", "runtime/a.go", "package p\n\n// I is.\ntype I interface{ M() }\n", ""},
		{"a bare constant", "runtime/a.go", "package p\n\nconst (\n\tC = 1\n)\n", "C is exported"},
		{"a constant of a group", "runtime/a.go", "package p\n\n// Some.\nconst (\n\tC = 1\n)\n", ""},
		{"a test's bare function", "runtime/a_test.go", "package p\n\nfunc TestX() {}\n", ""},
		{"no package comment", "verbs/soft/a.go", "package q\n", "no comment in doc.go"},
		{"a package comment elsewhere", "verbs/soft/a.go", "// Package q is.\npackage q\n", "no comment in doc.go"},
		{"a command's comment", "examples/01/main.go", "// Command x does.\npackage main\n", ""},
		{"too long", "runtime/a.go", "package p\n" + strings.Repeat("\n// x\n", maxLines/2), "split it"},
		{"not formatted", "runtime/a.go", "package p\nfunc  f() {}\n", "gofmt"},
		{"a marker", "runtime/a.go", "package p\n\n// TO" + "DO: the rest\nvar x int\n", "finish it"},
		{"a sleeping test", "runtime/a_test.go", "package p\n\nfunc f() { time.Sleep(1) }\n", "sleeps"},
		{"sleeping code", "runtime/a.go", "package p\n\nfunc f() { time.Sleep(1) }\n", ""},
		{"a bare skip", "runtime/a_test.go", "package p\n\nfunc f() { t.Skip() }\n", "without a reason"},
		{"a bare SkipNow", "runtime/a_test.go", "package p\n\nfunc f() { t.SkipNow() }\n", "without a reason"},
		{"a skip with a reason", "runtime/a_test.go", "package p\n\nfunc f() { t.Skip(\"no NUMA\") }\n", ""},
		{"what testdata holds", "runtime/testdata/a.go", "package p\nfunc  F() {}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{c.file: {Data: []byte(c.text)}}
			// Its package has a comment unless the test is about that.
			if dir := filepath.ToSlash(filepath.Dir(c.file)); !strings.Contains(c.text, "package q") && !strings.Contains(c.text, "package main") {
				files[dir+"/doc.go"] = &fstest.MapFile{Data: []byte(doc)}
			}
			if strings.HasPrefix(c.file, "cellar/") {
				delete(files, "cellar/doc.go")
				files[c.file].Data = []byte("// Command c does.\npackage main\n")
			}
			found, err := Check(files)
			switch {
			case err != nil:
				t.Fatal(err)
			case c.want == "" && len(found) > 0:
				t.Errorf("found %q where all is well", found)
			case c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)):
				t.Errorf("found %q, want one finding with %q", found, c.want)
			}
		})
	}
}
