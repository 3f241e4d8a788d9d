// Command coverage writes docs/coverage.md: the functions of librdmacm, librpma and libibverbs,
// what does the same in Go, and the tests that show it on each provider.
//
//	go run ./scripts/coverage
//
// functions.txt has a line for each function. The Go names come from the "Implements:" lines of
// doc comments, and the results of conformance cases from docs/conformance.md. The command fails
// and names the row when the row names a test that does not exist, when a function of librdmacm or
// librpma has neither a Go name nor a reason, or when the comments and functions.txt disagree.
//
// Run it in the root of the repository. It uses only the standard library.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strings"
)

// functionsText has a line for each C function. Its head describes the format.
//
//go:embed functions.txt
var functionsText string

// Files of the repository.
const (
	pageFile        = "docs/coverage.md"
	conformanceFile = "docs/conformance.md"
)

func main() {
	text, err := generate(os.DirFS("."), functionsText)
	if err == nil {
		err = os.WriteFile(pageFile, []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

// generate returns the page for a repository and a list of functions. The error has a line for
// each failure.
func generate(root fs.FS, functions string) (string, error) {
	libraries, err := parseFunctions(functions)
	if err != nil {
		return "", err
	}
	conformance, err := fs.ReadFile(root, conformanceFile)
	if err != nil {
		return "", err
	}
	t := tests{cases: parseConformance(string(conformance)), funcs: map[string]bool{}}
	c := claims{}
	if err := scan(root, c, t.funcs); err != nil {
		return "", err
	}
	s, found := evaluate(libraries, c, t)
	if len(found) > 0 {
		return "", errors.New(strings.Join(found, "\n"))
	}
	return s.page(), nil
}

// scan reads all Go files below root, for all build tags. It collects the claims of the packages
// that a program can import, and the test functions.
func scan(root fs.FS, c claims, funcs map[string]bool) error {
	return fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, text, parser.ParseComments|parser.SkipObjectResolution)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(p, "_test.go"):
			addTests(funcs, path.Dir(p), f)
		case f.Name.Name != "main" && !strings.Contains("/"+p, "/internal/") && !ast.IsGenerated(f):
			c.add(f)
		}
		return nil
	})
}

// differs returns an error that names the first line in which the page on disk is not the wanted
// one.
func differs(page, want string) error {
	got, lines := strings.Split(page, "\n"), strings.Split(want, "\n")
	for i := range max(len(got), len(lines)) {
		a, b := at(got, i), at(lines, i)
		if a != b {
			return fmt.Errorf("line %d of %s is %q, want %q: go run ./scripts/coverage writes it anew", i+1, pageFile, a, b)
		}
	}
	return nil
}

// at returns a line; behind the last one it says so.
func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the end)"
}
