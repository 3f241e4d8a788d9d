package main

import (
	"fmt"
	"slices"
	"strings"
)

// library is a C library, with its functions in groups.
type library struct {
	name, note string
	groups     []group
	// elsewhere has the names that "Implements:" sentences may contain although they are no
	// functions of a library: programs, modules of the kernel.
	elsewhere []string
}

type group struct {
	title string
	rows  []row
}

// row is one C function as written in functions.txt.
type row struct {
	name   string
	tests  []string // conformance cases, and Go tests such as "soft+rxe:runtime.TestX"
	reason string   // why the function has no place in Go
	open   bool     // the function will get a Go name
}

// The words of functions.txt; its head describes them.
const (
	comment       = "#"
	libraryMark   = "== "
	noteMark      = "> "
	groupMark     = "-- "
	elsewhereMark = "~ "
	reasonMark    = "none:"
	openMark      = "open"
)

// parseFunctions reads functions.txt.
func parseFunctions(text string) (libraries []library, err error) {
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, comment):
			continue
		case strings.HasPrefix(line, libraryMark):
			libraries = append(libraries, library{name: line[len(libraryMark):]})
			continue
		case len(libraries) == 0:
			return nil, fmt.Errorf("line %d of functions.txt stands before the first library: %q", n, line)
		}
		l := &libraries[len(libraries)-1]
		switch {
		case strings.HasPrefix(line, noteMark):
			l.note += line[len(noteMark):] + "\n"
		case strings.HasPrefix(line, groupMark):
			l.groups = append(l.groups, group{title: line[len(groupMark):]})
		case strings.HasPrefix(line, elsewhereMark):
			l.elsewhere = append(l.elsewhere, strings.Fields(line)[1])
		case len(l.groups) == 0:
			return nil, fmt.Errorf("line %d of functions.txt stands before the first group: %q", n, line)
		default:
			r, err := parseRow(line)
			if err == nil && seen[r.name] {
				err = fmt.Errorf("%s has a second row", r.name)
			}
			if err != nil {
				return nil, fmt.Errorf("line %d of functions.txt: %w", n, err)
			}
			seen[r.name] = true
			g := &l.groups[len(l.groups)-1]
			g.rows = append(g.rows, r)
		}
	}
	return libraries, nil
}

func parseRow(line string) (r row, err error) {
	line, reason, ok := strings.Cut(line, reasonMark)
	if r.reason = strings.TrimSpace(reason); ok && r.reason == "" {
		return r, fmt.Errorf("%q gives no reason", line)
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return r, fmt.Errorf("a reason without a function")
	}
	r.name, r.tests = words[0], words[1:]
	if i := slices.Index(r.tests, openMark); i >= 0 {
		r.open, r.tests = true, slices.Delete(r.tests, i, i+1)
	}
	if r.open && r.reason != "" {
		return r, fmt.Errorf("%s is open and has a reason", r.name)
	}
	return r, nil
}
