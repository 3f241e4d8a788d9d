package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// module is the import path of the repository.
const module = "github.com/verbena-rdma/verbena"

// source is one file of Go.
type source struct {
	path string // from the root of the repository, with slashes
	text []byte
	fset *token.FileSet
	ast  *ast.File
}

func (s *source) dir() string   { return path.Dir(s.path) }
func (s *source) test() bool    { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) command() bool { return s.ast.Name.Name == "main" }

// at formats a finding with its position.
func (s *source) at(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(pos).Line, fmt.Sprintf(format, args...))
}

// Check reads all Go files below root and returns the violations, sorted, a line each:
// "file:line: text". The error is for files that cannot be read or parsed.
func Check(root fs.FS) (findings []string, err error) {
	var sources []*source
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		s := &source{path: p, fset: token.NewFileSet()}
		if s.text, err = fs.ReadFile(root, p); err != nil {
			return err
		}
		if s.ast, err = parser.ParseFile(s.fset, p, s.text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return err
		}
		sources = append(sources, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		findings = append(findings, s.imports()...)
		findings = append(findings, s.docs()...)
		findings = append(findings, s.shape()...)
	}
	findings = append(findings, packageDocs(sources)...)
	rungs, err := checkExamples(root, sources)
	if err != nil {
		return nil, err
	}
	findings = append(findings, rungs...)
	slices.Sort(findings)
	return findings, nil
}

// maxLines is the limit for the length of a file; most have 60 to 250.
const maxLines = 500

// markers are words that mark unfinished work. They are concatenated here so that this file does
// not contain them.
var markers = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK:"}

// shape checks length, formatting and markers, and, in tests, sleeping and skips without a
// reason.
func (s *source) shape() (found []string) {
	if n := bytes.Count(s.text, []byte("\n")); n > maxLines {
		found = append(found, fmt.Sprintf("%s:1: %d lines, at most %d: split it by topic", s.path, n, maxLines))
	}
	if want, err := format.Source(s.text); err != nil || !bytes.Equal(want, s.text) {
		found = append(found, fmt.Sprintf("%s:1: not as gofmt writes it", s.path))
	}
	for _, group := range s.ast.Comments {
		for _, m := range markers {
			if strings.Contains(group.Text(), m) {
				found = append(found, s.at(group.Pos(), "%s: finish it, or open an issue", m))
			}
		}
	}
	if s.test() {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			on, _ := sel.X.(*ast.Ident)
			switch {
			case on != nil && on.Name == "time" && sel.Sel.Name == "Sleep":
				found = append(found, s.at(n.Pos(), "a test that sleeps: wait for what it waits for"))
			case sel.Sel.Name == "SkipNow" || sel.Sel.Name == "Skip" && on != nil && on.Name == "t" && len(call.Args) == 0:
				found = append(found, s.at(n.Pos(), "a skip without a reason"))
			}
			return true
		})
	}
	return found
}
