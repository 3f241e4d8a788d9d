package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"strings"
)

// The kinds of mutants, in the order of rotation.
const (
	negated  = "negated condition"
	noCall   = "removed call"
	constant = "changed constant"
	operator = "swapped operator"
	noGuard  = "removed guard"
)

var kinds = []string{negated, noCall, constant, operator, noGuard}

// mutant is one change of a source file: the bytes from start to end become with.
type mutant struct {
	file      string // the name passed to mutants
	line, col int    // from 1
	// runLine and runCol are a position that is executed whenever the change is, and that coverage knows: that
	// of the switch for the expressions of its cases, otherwise line and col.
	runLine, runCol int
	kind            string
	start, end      int
	with            string
	// key identifies the change by the text of its function. It stays the same while that does,
	// wherever the function stands.
	key string
}

var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

// mutants returns all changes of a file's function bodies, in the order of the source. It skips
// declarations outside of functions, which have no coverage, and generated files.
func mutants(file string, src []byte) (all []mutant, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		from, text := at(fn.Pos()), src[at(fn.Pos()):at(fn.End())]
		// The expressions of cases, and their switches.
		type caseExpr struct {
			expr ast.Expr
			of   *ast.SwitchStmt
		}
		var cases []caseExpr
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if s, ok := n.(*ast.SwitchStmt); ok {
				for _, c := range s.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						cases = append(cases, caseExpr{e, s})
					}
				}
			}
			return true
		})
		add := func(kind string, pos, end token.Pos, with string) {
			m := mutant{file: file, kind: kind, start: at(pos), end: at(end), with: with}
			p := fset.Position(pos)
			m.line, m.col = p.Line, p.Column
			run := p
			for _, c := range cases {
				if c.expr.Pos() <= pos && pos < c.expr.End() {
					run = fset.Position(c.of.Pos())
				}
			}
			m.runLine, m.runCol = run.Line, run.Column
			if old := string(src[m.start:m.end]); with == "" { // keep the line numbers
				m.with = strings.Repeat("\n", strings.Count(old, "\n"))
			}
			sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", text, kind, m.start-from, m.end-from, with))
			m.key = hex.EncodeToString(sum[:6])
			all = append(all, m)
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				add(negated, n.Cond.Pos(), n.Cond.End(), "!("+string(src[at(n.Cond.Pos()):at(n.Cond.End())])+")")
				if guards(n) {
					add(noGuard, n.Pos(), n.End(), "")
				}
			case *ast.ForStmt:
				if n.Cond != nil {
					add(negated, n.Cond.Pos(), n.Cond.End(), "!("+string(src[at(n.Cond.Pos()):at(n.Cond.End())])+")")
				}
			case *ast.ExprStmt:
				if _, ok := n.X.(*ast.CallExpr); ok {
					add(noCall, n.Pos(), n.End(), "")
				}
			case *ast.DeferStmt:
				add(noCall, n.Pos(), n.End(), "")
			case *ast.BinaryExpr:
				if to, ok := swaps[n.Op]; ok {
					add(operator, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
				}
			case *ast.BasicLit:
				if n.Kind == token.INT {
					add(constant, n.Pos(), n.End(), "("+n.Value+" + 1)")
				}
			case *ast.Ident:
				if to := map[string]string{"true": "false", "false": "true"}[n.Name]; to != "" {
					add(constant, n.Pos(), n.End(), to)
				}
			}
			return true
		})
	}
	return all, nil
}

// guards reports whether s only returns early.
func guards(s *ast.IfStmt) bool {
	if s.Else != nil || len(s.Body.List) != 1 {
		return false
	}
	_, returns := s.Body.List[0].(*ast.ReturnStmt)
	return returns
}

// apply returns src with the change.
func (m mutant) apply(src []byte) []byte {
	return append(append(append([]byte{}, src[:m.start]...), m.with...), src[m.end:]...)
}

// diff returns the first line of the change, before and after.
func (m mutant) diff(src []byte) string {
	line := func(text []byte) string {
		return strings.TrimSpace(strings.SplitAfter(string(text), "\n")[m.line-1])
	}
	return fmt.Sprintf("  - %s\n  + %s\n", line(src), line(m.apply(src)))
}

// shuffled returns all in the order of a seed, the kinds in rotation as long as they last.
func shuffled(all []mutant, seed uint64) []mutant {
	r := rand.New(rand.NewPCG(seed, 0x6d7574616e7473))
	by := map[string][]mutant{}
	for _, i := range r.Perm(len(all)) {
		by[all[i].kind] = append(by[all[i].kind], all[i])
	}
	order := make([]mutant, 0, len(all))
	for len(order) < len(all) {
		for _, k := range kinds {
			if len(by[k]) > 0 {
				order, by[k] = append(order, by[k][0]), by[k][1:]
			}
		}
	}
	return order
}
