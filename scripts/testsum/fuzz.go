package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// grace is how long a fuzzing process may take to end after an interrupt: it may be minimizing a
// finding.
const grace = 90 * time.Second

// progress begins the engine's progress lines.
const progress = "fuzz: elapsed"

// isFuzz finds the declaration of a fuzz target.
var isFuzz = regexp.MustCompile(`(?m)^func Fuzz\w*\(`)

// pkg is a package with fuzz targets.
type pkg struct{ path, dir string }

// target is one fuzz target, built.
type target struct {
	pkg
	bin, corpus, name string
}

// fuzz runs each fuzz target of the packages in args for a time, as many at a time as there are
// processors, each with one worker; FUZZJOBS overrides the number. It builds only packages that
// declare a target.
func fuzz(r *record, args []string, out io.Writer) error {
	per, err := time.ParseDuration(args[0])
	if err != nil || per <= 0 {
		return fmt.Errorf("fuzz: %q is no time for a target, such as 3s", args[0])
	}
	jobs := goruntime.NumCPU()
	if s := os.Getenv("FUZZJOBS"); s != "" {
		if jobs, err = strconv.Atoi(s); err != nil || jobs < 1 {
			return fmt.Errorf("FUZZJOBS=%q is not a number of targets to run at once", s)
		}
	}
	pkgs, err := withTargets(args[1:])
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "testsum")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}
	var targets []target
	for i, p := range pkgs {
		bin := filepath.Join(tmp, fmt.Sprintf("fuzz%d.test", i))
		build := exec.Command("go", "test", "-c", "-fuzz=.", "-o", bin, p.path)
		if text, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(out, "FAIL: building %s: %v\n%s", p.path, err, text)
			r.fails(name{pkg: p.path}, fmt.Sprintf("building it: %v\n%s", err, text))
			continue
		}
		list := exec.Command(bin, "-test.list=^Fuzz")
		list.Dir = p.dir
		names, err := list.Output()
		if err != nil {
			return fmt.Errorf("listing the fuzz targets of %s: %w", p.path, err)
		}
		corpus := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", filepath.FromSlash(p.path))
		for name := range strings.FieldsSeq(string(names)) {
			targets = append(targets, target{p, bin, corpus, name})
		}
	}
	var mu sync.Mutex // guards r and out
	var wg sync.WaitGroup
	next := make(chan target)
	for range min(jobs, len(targets)) {
		wg.Go(func() {
			for t := range next {
				last, err := one(t, per)
				mu.Lock()
				if err != nil {
					fmt.Fprintf(out, "FAIL: %s %s: %v\n", t.path, t.name, err)
					r.fails(name{t.path, t.name}, fmt.Sprintln(err))
				} else {
					fmt.Fprintf(out, "ok  \t%s %s\t%s\n", t.path, t.name, last)
					r.Passed++
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range targets {
		next <- t
	}
	close(next)
	wg.Wait()
	return nil
}

func withTargets(patterns []string) ([]pkg, error) {
	const format = "{{.ImportPath}}\t{{.Dir}}{{range .TestGoFiles}}\t{{.}}{{end}}{{range .XTestGoFiles}}\t{{.}}{{end}}"
	text, err := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w", patterns, err)
	}
	var pkgs []pkg
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		for _, file := range f[2:] {
			src, err := os.ReadFile(filepath.Join(f[1], file))
			if err != nil {
				return nil, err
			}
			if isFuzz.Match(src) {
				pkgs = append(pkgs, pkg{f[0], f[1]})
				break
			}
		}
	}
	return pkgs, nil
}

// output keeps what a fuzzing process writes, and notices its first progress line. The engine
// prints that line after it has asked for interrupts; one sent before it kills the process.
type output struct {
	text  bytes.Buffer  // not embedded: its ReadFrom would pass Write by
	begun chan struct{} // closed at the first progress line
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.text.Write(b)
	select {
	case <-o.begun:
	default:
		if bytes.Contains(o.text.Bytes(), []byte(progress)) {
			close(o.begun)
		}
	}
	return n, err
}

// one fuzzes one target, returns its last progress line, and ends it by an interrupt once it has
// run for a time since its first. With a time limit of its own the engine sometimes reports its
// own end as a failure (https://go.dev/issue/75804, fixed in Go 1.27); with an interrupt it does
// not.
func one(t target, per time.Duration) (last string, err error) {
	if err := os.MkdirAll(t.corpus, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command(t.bin, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzzcachedir="+t.corpus, "-test.parallel=1")
	cmd.Dir = t.dir // findings go to testdata/fuzz there
	said := output{begun: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	over := make(chan struct{}) // closed when the target has had its time
	go func() {
		defer close(over)
		select {
		case <-said.begun:
			time.Sleep(per)
		case <-time.After(grace):
		}
	}()
	select {
	case err = <-ended: // it ended early: a finding
		if err == nil {
			err = errors.New("it ended before its time without a finding")
		}
	case <-over:
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return "", err
		}
		select {
		case err = <-ended:
		case <-time.After(grace):
			err = errors.Join(fmt.Errorf("still running %v after an interrupt: an input hangs", grace), cmd.Process.Kill(), <-ended)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, said.text.Bytes())
	}
	for line := range strings.Lines(said.text.String()) {
		if strings.HasPrefix(line, progress) {
			last = strings.TrimSpace(line)
		}
	}
	return last, nil
}
