package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// block is a basic block of a file, as reported by the coverage tool.
type block struct {
	File            string // its last element
	Line, Col       int
	EndLine, EndCol int
}

func (b block) holds(m mutant) bool {
	after := m.runLine > b.Line || m.runLine == b.Line && m.runCol >= b.Col
	before := m.runLine < b.EndLine || m.runLine == b.EndLine && m.runCol < b.EndCol
	return b.File == filepath.Base(m.file) && after && before
}

// coverage lists the blocks of a package that each of its tests executes when it runs alone.
type coverage struct {
	Blocks []block
	Tests  []test
	Broken []string // tests that fail alone: not used
}

type test struct {
	Name   string
	Took   time.Duration
	Blocks []int
}

// covering returns the tests that execute a mutant, quickest first: as many as run within half of
// the limit, and at least one. all is the number of all such tests.
func (c *coverage) covering(m mutant, limit time.Duration) (names []string, all int) {
	in := -1 // the innermost block
	for i, b := range c.Blocks {
		if b.holds(m) && (in < 0 || b.Line > c.Blocks[in].Line || b.Line == c.Blocks[in].Line && b.Col > c.Blocks[in].Col) {
			in = i
		}
	}
	var tests []test
	for _, t := range c.Tests {
		if slices.Contains(t.Blocks, in) {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.Took, b.Took) })
	left := limit / 2
	for _, t := range tests {
		if left -= t.Took; left < 0 && len(names) > 0 {
			break
		}
		names = append(names, t.Name)
	}
	return names, len(tests)
}

// testLimit ends a test that hangs when it runs alone.
const testLimit = 5 * time.Minute

// covers returns the coverage of a package: from the cache, or measured, which takes as long as
// all of its tests one by one.
func covers(ctx context.Context, p *pkg, tmp string) (*coverage, error) {
	dir, err := goTool(ctx, "env", "GOCACHE")
	if err != nil {
		return nil, err
	}
	cache := filepath.Join(strings.TrimSpace(dir), "verbena-mutants", p.hash()+".json")
	c := &coverage{}
	if text, err := os.ReadFile(cache); err == nil && json.Unmarshal(text, c) == nil {
		return c, nil
	}
	*c = coverage{}
	bin := filepath.Join(tmp, "cover.test")
	if _, err := goTool(ctx, "test", "-c", "-vet=off", "-cover", "-covermode=atomic", "-coverpkg="+p.ImportPath, "-o", bin, p.ImportPath); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "-test.list", "^(Test|Fuzz|Example)")
	cmd.Dir = p.Dir
	list, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(list))
	for i, name := range names {
		progress("%s: coverage of test %d of %d, %s", p.ImportPath, i+1, len(names), name)
		t, err := c.measure(ctx, p, bin, name, filepath.Join(tmp, "cover.out"))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			c.Broken = append(c.Broken, name)
			continue
		}
		c.Tests = append(c.Tests, t)
	}
	text, err := json.Marshal(c)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(cache), 0o755)
	}
	if err == nil {
		err = os.WriteFile(cache, text, 0o644)
	}
	return c, err
}

// measure runs a test alone.
func (c *coverage) measure(ctx context.Context, p *pkg, bin, name, profile string) (test, error) {
	t, from := test{Name: name}, time.Now()
	if failed, late, _ := p.run(ctx, bin, []string{name}, testLimit, "-test.coverprofile="+profile); failed || late {
		return t, fmt.Errorf("%s fails alone", name)
	}
	t.Took = time.Since(from)
	f, err := os.Open(profile)
	if err != nil {
		return t, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 0; s.Scan(); { // the same blocks every time, after the line with the mode
		file, rest, ok := strings.Cut(s.Text(), ".go:")
		if !ok {
			continue
		}
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.Line, &b.Col, &b.EndLine, &b.EndCol, &statements, &count); err != nil {
			return t, fmt.Errorf("%s: %q: %w", profile, s.Text(), err)
		}
		b.File = path.Base(file) + ".go"
		if n == len(c.Blocks) {
			c.Blocks = append(c.Blocks, b)
		}
		if c.Blocks[n] != b {
			return t, fmt.Errorf("%s: block %d is %v, was %v", profile, n, b, c.Blocks[n])
		}
		if count > 0 {
			t.Blocks = append(t.Blocks, n)
		}
		n++
	}
	return t, s.Err()
}

// hash identifies the current state of the package: its files, tests included, and the version of
// Go.
func (p *pkg) hash() string {
	h := sha256.New()
	for _, list := range [][]string{p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles} {
		for _, f := range list {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			fmt.Fprintf(h, "%s %d %v\n%s", f, len(text), err, text)
		}
	}
	fmt.Fprint(h, p.ImportPath, p.version)
	return hex.EncodeToString(h.Sum(nil)[:12])
}
