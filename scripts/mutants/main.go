// Command mutants finds changes of the code that the tests do not detect.
//
//	go run ./scripts/mutants [-n 100] [-seed 1] [-timeout 30s] [packages]
//
// It makes n mutants of each package (./runtime ./reactor ./runtime/actor by default), chosen by
// the seed: a condition negated, a call removed, a constant or an operator changed, a guard
// removed. Each is built with `go test -overlay` and run against the tests that execute the
// changed place. Those are known from a run of each test alone, which is kept in Go's build cache
// and measured again when the package's files change. If they take more than half of the limit,
// only the quickest are run. A mutant that does not compile is skipped, and the next takes its
// place.
//
// A mutant that survives shows a missing test, or is equivalent: no test could detect it. Then
// its key, which identifies the change and the text of its function, goes into equivalents.txt
// with the reason.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// equivalentsText has a line for each known equivalent: its key, and why no test can detect it.
//
//go:embed equivalents.txt
var equivalentsText string

func equivalents(text string) map[string]string {
	known := map[string]string{}
	for line := range strings.Lines(text) {
		if key, why, _ := strings.Cut(strings.TrimSpace(line), " "); key != "" && key != "#" {
			known[key] = strings.TrimSpace(why)
		}
	}
	return known
}

func main() {
	n := flag.Int("n", 100, "mutants of each package")
	seed := flag.Uint64("seed", 1, "which they are")
	limit := flag.Duration("timeout", 30*time.Second, "for the tests of a mutant; one that needs longer is killed")
	flag.Parse()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./runtime", "./reactor", "./runtime/actor"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, packages, *n, *seed, *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, packages []string, n int, seed uint64, limit time.Duration) error {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var tallies []*tally
	for _, name := range packages {
		p, err := load(ctx, name)
		if err != nil {
			return err
		}
		t, err := p.try(ctx, tmp, n, seed, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		tallies = append(tallies, t)
	}
	return report(os.Stdout, tallies, seed)
}

// pkg is a package as reported by `go list`.
type pkg struct {
	Dir, ImportPath                              string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	version                                      string // of Go
}

func load(ctx context.Context, name string) (*pkg, error) {
	text, err := goTool(ctx, "list", "-json", name)
	if err != nil {
		return nil, err
	}
	p := &pkg{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, err
	}
	p.version, err = goTool(ctx, "version")
	return p, err
}

// goTool runs the go command.
func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// build makes the test binary of a mutant; it returns false when that does not compile.
func (p *pkg) build(ctx context.Context, m mutant, src []byte, tmp, bin string) (bool, error) {
	file, overlay := filepath.Join(tmp, "mutant.go"), filepath.Join(tmp, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: file}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return false, err
	}
	if err := os.WriteFile(file, m.apply(src), 0o600); err != nil {
		return false, err
	}
	_, err = goTool(ctx, "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, p.ImportPath)
	return err == nil, ctx.Err()
}

// run runs tests of a binary by name. late reports that they did not end within the limit.
func (p *pkg) run(ctx context.Context, bin string, names []string, limit time.Duration, flags ...string) (failed, late bool, err error) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append(flags, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.timeout=0")
	cmd := exec.CommandContext(timed, bin, args...)
	cmd.Dir = p.Dir
	err = cmd.Run()
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return false, false, ctx.Err()
	case timed.Err() != nil:
		return false, true, nil
	case ok && !exit.Success():
		return true, false, nil
	}
	return false, false, err
}

// progress prints the current activity to standard error.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
