package main

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// claims maps a name in an "Implements:" sentence to the Go names that carry the sentence, such as
// verbs.CMID.Connect.
type claims map[string][]string

// mark begins the sentence of a doc comment that names C functions.
const mark = "Implements:"

var (
	// sentence matches the end of the sentence. The dots of "cma.c" and "9.7" end none.
	sentence = regexp.MustCompile(`\.(\s|$)|\n\n`)
	word     = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	// function matches the names that must have a row.
	function = regexp.MustCompile(`^(rdma|ibv|rpma)_[a-z0-9_]+$`)
)

// named returns the words of the "Implements:" sentences of a comment, without the names of C
// types.
func named(doc string) (names []string) {
	for {
		_, rest, ok := strings.Cut(doc, mark)
		if !ok {
			return names
		}
		doc = rest
		if end := sentence.FindStringIndex(rest); end != nil {
			rest = rest[:end[0]]
		}
		before := ""
		for _, w := range word.FindAllString(rest, -1) {
			if before != "struct" && before != "enum" && before != "union" {
				names = append(names, w)
			}
			before = w
		}
	}
}

// add collects the claims of a file.
func (c claims) add(f *ast.File) {
	pkg := f.Name.Name + "."
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			c.claim(d.Doc, pkg+receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for i, spec := range d.Specs {
				doc, name := d.Doc, ""
				if i > 0 {
					doc = nil // the comment of a group is counted for its first member only
				}
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					name = pkg + spec.Name.Name
					c.claim(spec.Doc, name)
					c.addMembers(name+".", spec.Type)
				case *ast.ValueSpec:
					name = pkg + spec.Names[0].Name
					c.claim(spec.Doc, name)
				}
				c.claim(doc, name)
			}
		}
	}
}

// addMembers collects the claims of an interface's methods and of a struct's fields.
func (c claims) addMembers(of string, t ast.Expr) {
	var members []*ast.Field
	switch t := t.(type) {
	case *ast.InterfaceType:
		members = t.Methods.List
	case *ast.StructType:
		members = t.Fields.List
	}
	for _, m := range members {
		for _, name := range m.Names {
			c.claim(m.Doc, of+name.Name)
		}
	}
}

func (c claims) claim(doc *ast.CommentGroup, by string) {
	for _, name := range named(doc.Text()) {
		if !slices.Contains(c[name], by) {
			c[name] = append(c[name], by)
		}
	}
}

// goNames returns the Go names of a C function, sorted: the exported ones. A method of an
// unexported type is called through an interface of package verbs. It counts only if there is no
// other name.
func (c claims) goNames(function string) (names []string) {
	var behind []string
	for _, by := range c[function] {
		switch parts := strings.Split(by, "."); {
		case !ast.IsExported(parts[len(parts)-1]):
		case ast.IsExported(parts[1]):
			names = append(names, by)
		default:
			behind = append(behind, by)
		}
	}
	if names == nil {
		names = behind
	}
	slices.Sort(names)
	return names
}

// receiver returns the type of a method's receiver and a dot; nothing for a function.
func receiver(d *ast.FuncDecl) (name string) {
	if d.Recv == nil {
		return ""
	}
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name + "."
		}
		return name == ""
	})
	return name
}
