package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// The providers, in the order of the page's columns.
const (
	soft = iota
	null
	rxe
	numProviders
)

// providers are their titles on the page, their names in functions.txt, and the beginning of their
// devices' names in docs/conformance.md.
var providers = [numProviders]struct{ title, name, device string }{
	soft: {"software RNIC", "soft", "soft "},
	null: {"null device", "null", "ibv null"},
	rxe:  {"Soft-RoCE", "rxe", "ibv rxe"},
}

// everyProvider stands for all providers before a Go test.
const everyProvider = "all"

// tests are all tests that a row may name.
type tests struct {
	// cases has the providers on which each conformance case passes. A case passes on a provider
	// when it passes on a pair of two devices of the provider.
	cases map[string]*[numProviders]bool
	funcs map[string]bool // Go tests, such as "verbs/ibv.TestForkPolicy"
}

// addTests collects the test functions of a file.
func addTests(funcs map[string]bool, dir string, f *ast.File) {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && strings.HasPrefix(d.Name.Name, "Test") && d.Name.Name != "TestMain" {
			funcs[dir+"."+d.Name.Name] = true
		}
	}
}

// parseConformance reads docs/conformance.md: the provider of each pair from the table at the top,
// then the verdicts of the cases.
func parseConformance(text string) map[string]*[numProviders]bool {
	cases := map[string]*[numProviders]bool{}
	pairs := map[string]int{} // to providers
	var columns []string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		first, _, _ := strings.Cut(cells[0], " ")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case strings.HasPrefix(line, "|-"): // the line below the titles
		case first == "case" || first == "pair":
			columns = cells
		case columns == nil:
		case columns[0] == "pair":
			for p := range providers {
				if d := providers[p].device; strings.HasPrefix(cells[1], d) && strings.HasPrefix(cells[2], d) {
					pairs[first] = p
				}
			}
		default:
			cases[first] = &[numProviders]bool{}
			for i := 2; i < len(cells); i++ {
				if p, ok := pairs[columns[i]]; ok && cells[i] == "pass" {
					cases[first][p] = true
				}
			}
		}
	}
	return cases
}

// shown is what a test shows on one provider.
type shown struct {
	test   string
	passes bool // false: not applicable there
}

// resolve returns what a test of a row shows on each provider; the last value is why it cannot.
func (t tests) resolve(name string) (on [numProviders]*shown, why string) {
	names, fn, ok := strings.Cut(name, ":")
	if !ok {
		passes := t.cases[name]
		if passes == nil {
			return on, fmt.Sprintf("%s has no conformance case %s", conformanceFile, name)
		}
		for p := range on {
			on[p] = &shown{name, passes[p]}
		}
		return on, ""
	}
	if !t.funcs[fn] {
		return on, fmt.Sprintf("there is no test %s", fn)
	}
	for n := range strings.SplitSeq(names, "+") {
		known := false
		for p := range on {
			if n == everyProvider || n == providers[p].name {
				on[p], known = &shown{fn, true}, true
			}
		}
		if !known {
			return on, fmt.Sprintf("%s is no provider", n)
		}
	}
	return on, ""
}

// passing reports whether a test passes.
func passing(tests []shown) bool {
	return slices.ContainsFunc(tests, func(s shown) bool { return s.passes })
}
