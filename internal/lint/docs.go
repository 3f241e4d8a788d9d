package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// docs checks that all exported constants, variables, types, functions and methods have a
// comment. One for a group of constants or variables suffices, and the comment of an interface
// may cover its methods.
func (s *source) docs() (found []string) {
	if s.test() || s.command() {
		return nil
	}
	missing := func(n ast.Node, name string) {
		found = append(found, s.at(n.Pos(), "%s is exported and has no comment", name))
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
				missing(d, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() && spec.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
						missing(spec, spec.Name.Name)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
							missing(name, name.Name)
						}
					}
				}
			}
		}
	}
	return found
}

// receiverExported reports whether d is a function, or a method of an exported type.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// packageDocs checks that all packages have a comment, which stands in a file doc.go except for
// commands.
func packageDocs(sources []*source) (found []string) {
	first, has := map[string]*source{}, map[string]bool{}
	var dirs []string
	for _, s := range sources {
		if s.test() {
			continue
		}
		if first[s.dir()] == nil {
			first[s.dir()] = s
			dirs = append(dirs, s.dir())
		}
		if s.ast.Doc != nil && s.ast.Doc.Pos() != token.NoPos {
			has[s.dir()] = has[s.dir()] || s.command() || s.path == s.dir()+"/doc.go"
		}
	}
	slices.Sort(dirs)
	for _, d := range dirs {
		if !has[d] {
			found = append(found, fmt.Sprintf("%s:1: package %s has no comment in doc.go", first[d].path, first[d].ast.Name.Name))
		}
	}
	return found
}
