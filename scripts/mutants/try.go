package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// outcome is the result of a mutant.
type outcome string

const (
	killed     outcome = "killed"
	timedOut   outcome = "timed out"
	survived   outcome = "survived"
	notCovered outcome = "not covered"
	equivalent outcome = "equivalent"
)

var outcomes = []outcome{killed, timedOut, survived, notCovered, equivalent}

// tally holds the results of the mutants of a package, a text for each.
type tally struct {
	name   string
	n      int
	said   map[outcome][]string
	broken []string // tests that were not used
}

// try makes n mutants of the package and tests them.
func (p *pkg) try(ctx context.Context, tmp string, n int, seed uint64, limit time.Duration) (*tally, error) {
	c, err := covers(ctx, p, tmp)
	if err != nil {
		return nil, err
	}
	var all []mutant
	sources := map[string][]byte{}
	for _, f := range p.GoFiles {
		file := filepath.Join(p.Dir, f)
		if sources[file], err = os.ReadFile(file); err != nil {
			return nil, err
		}
		found, err := mutants(file, sources[file])
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	t := &tally{name: p.ImportPath, said: map[outcome][]string{}, broken: c.Broken}
	known, bin := equivalents(equivalentsText), filepath.Join(tmp, "mutant.test")
	for _, m := range shuffled(all, seed) {
		if t.n == n {
			break
		}
		if ok, err := p.build(ctx, m, sources[m.file], tmp, bin); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		t.n++
		names, of := c.covering(m, limit)
		o, why := equivalent, known[m.key]
		if why == "" {
			if o, err = p.meet(ctx, bin, names, limit); err != nil {
				return nil, err
			}
			why = fmt.Sprintf("%d of %d tests", len(names), of)
		}
		at := fmt.Sprintf("%s/%s:%d: %s, %s (%s)", p.ImportPath, filepath.Base(m.file), m.line, m.kind, m.key, why)
		progress("%d. %s: %s", t.n, at, o)
		t.said[o] = append(t.said[o], at+"\n"+m.diff(sources[m.file]))
	}
	return t, nil
}

// meet runs the tests that execute a mutant.
func (p *pkg) meet(ctx context.Context, bin string, names []string, limit time.Duration) (outcome, error) {
	if len(names) == 0 {
		return notCovered, nil
	}
	switch failed, late, err := p.run(ctx, bin, names, limit); {
	case late:
		return timedOut, nil
	case failed:
		return killed, nil
	default:
		return survived, err
	}
}

// report prints the table, and after it the mutants to examine: all except those killed by a
// failed test.
func report(w io.Writer, tallies []*tally, seed uint64) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "seed %d\tmutants", seed)
	for _, o := range outcomes {
		fmt.Fprintf(table, "\t%s", o)
	}
	for _, t := range tallies {
		fmt.Fprintf(table, "\n%s\t%d", t.name, t.n)
		for _, o := range outcomes {
			fmt.Fprintf(table, "\t%d", len(t.said[o]))
		}
	}
	fmt.Fprintln(table)
	err := table.Flush()
	for _, o := range outcomes[1:] {
		for _, t := range tallies {
			for _, text := range t.said[o] {
				fmt.Fprintf(w, "\n%s: %s", o, text)
			}
		}
	}
	for _, t := range tallies {
		for _, name := range t.broken {
			fmt.Fprintf(w, "\n%s fails alone, and was not used: %s\n", name, t.name)
		}
	}
	return err
}
