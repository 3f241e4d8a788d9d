// Command typecheck checks the types of all packages of the module, with their tests, for other
// systems: each argument is GOOS/GOARCH[,TAG...], without cgo. It reads the sources, the standard
// library's too, and compiles nothing: some seconds of one processor for each system, whatever is
// in the build cache, where go vet takes a minute at first, and twenty seconds after a change.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	found := make([]error, len(os.Args))
	var wg sync.WaitGroup
	room := make(chan struct{}, runtime.NumCPU())
	for i, system := range os.Args[1:] {
		wg.Go(func() {
			room <- struct{}{}
			if found[i] = check(system); found[i] != nil {
				found[i] = fmt.Errorf("%s:\n%w", system, found[i])
			}
			<-room
		})
	}
	wg.Wait()
	if err := errors.Join(found...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// unit is the output of go list for a package, or for its variant in a test build.
type unit struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // imports whose unit differs from their path
	Standard        bool
}

// check checks the module for one system, in the order of go list: a package comes after its
// imports.
func check(system string) error {
	system, tags, _ := strings.Cut(system, ",")
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.Command("go", "list", "-tags", tags, "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard", "./...")
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	var trouble strings.Builder
	list.Stderr = &trouble
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w: %s", err, trouble.String())
	}
	var found []error
	said := map[string]bool{} // a file with an error is in several units
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var u unit
		if err := d.Decode(&u); err == io.EOF {
			return errors.Join(found...)
		} else if err != nil {
			return err
		}
		if u.ImportPath == "unsafe" || strings.HasSuffix(u.ImportPath, ".test") { // the generated test main
			continue
		}
		files, fset, err := parse(&u)
		if err != nil {
			return err
		}
		conf := types.Config{
			Importer: imports(func(path string) (*types.Package, error) {
				if other, ok := u.ImportMap[path]; ok {
					path = other
				}
				if p := done[path]; p != nil {
					return p, nil
				}
				return nil, fmt.Errorf("go list has no %s before %s", path, u.ImportPath)
			}),
			Sizes:            types.SizesFor("gc", goarch),
			IgnoreFuncBodies: u.Standard,
			Error: func(err error) {
				if !u.Standard && !said[err.Error()] {
					found, said[err.Error()] = append(found, err), true
				}
			},
		}
		path, _, _ := strings.Cut(u.ImportPath, " ")               // of "path [tests]"
		done[u.ImportPath], _ = conf.Check(path, fset, files, nil) // its errors went to found
	}
}

// parse parses the files of a unit.
func parse(u *unit) (files []*ast.File, fset *token.FileSet, err error) {
	fset = token.NewFileSet()
	for _, name := range u.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	return files, fset, nil
}

type imports func(path string) (*types.Package, error)

func (f imports) Import(path string) (*types.Package, error) { return f(path) }
