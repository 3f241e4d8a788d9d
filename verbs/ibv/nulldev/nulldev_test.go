package nulldev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// programTime bounds one run of a C program, sanitized and on a busy machine.
const programTime = 2 * time.Minute

// built builds the libraries; it skips the test where there is no compiler.
func built(t *testing.T, flags ...string) Paths {
	t.Helper()
	p, err := build(flags...)
	if errors.Is(err, ErrNoCompiler) {
		t.Skipf("not applicable: %v; on Debian, apt install gcc", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sanitizers returns the flags for the address and undefined-behavior sanitizers, none where the
// compiler lacks them.
var sanitizers = sync.OnceValue(func() []string {
	cc, _, err := compiler()
	if err != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "nulldev")
	if err != nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(dir) }()
	flags := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"}
	src := filepath.Join(dir, "probe.c")
	if os.WriteFile(src, []byte("int main(void) { return 0; }"), 0o644) != nil ||
		exec.Command(cc, append(flags, "-o", filepath.Join(dir, "probe"), src)...).Run() != nil {
		return nil
	}
	return flags
})

// programArgs are the arguments of programs that need some: a short run of the measurement of
// BenchmarkInstant in verbs/ibv.
var programArgs = map[string][]string{"loop": {"100", "16"}}

// Rule: the libraries behave like rdma-core's for a C program that calls them as applications do.
// Each program prints its cases; sanitized where the compiler can.
func TestCPrograms(t *testing.T) {
	flags := sanitizers()
	if flags == nil {
		t.Log("without sanitizers: the compiler has none")
	}
	p := built(t, flags...)
	cc, _, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Dir(p.Verbs)
	for _, name := range []string{"loopback", "instant", "faults", "cm", "loop"} {
		t.Run(name, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), name)
			args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Wno-unused-function", "-pthread", "-I" + filepath.Join(lib, "abi"), "-I" + filepath.Join(lib, "c"),
				"-o", bin, filepath.Join("testdata", name+".c"), "-L" + lib, "-l:" + verbsFile, "-l:" + rdmacmFile, "-Wl,-rpath," + lib}, flags...)
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				t.Fatalf("compiling: %v\n%s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), programTime)
			defer cancel()
			out, err := exec.CommandContext(ctx, bin, programArgs[name]...).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Rule: concurrent builds all get the same, complete libraries.
func TestBuildAtOnce(t *testing.T) {
	built(t) // the first run detects the compiler
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var wg sync.WaitGroup
	got := make([]Paths, 3)
	errs := make([]error, len(got))
	for i := range got {
		wg.Go(func() { got[i], errs[i] = Build() })
	}
	wg.Wait()
	for i, p := range got {
		if errs[i] != nil || p != got[0] {
			t.Errorf("build %d gave %v, %v, another %v", i, p, errs[i], got[0])
		}
		for _, f := range []string{p.Verbs, p.RDMACM} {
			if _, err := os.Stat(f); err != nil {
				t.Error(err)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(got[0].Verbs)))
	if err != nil || len(entries) != 1 {
		t.Errorf("the cache has %v (%v), want the one build and nothing half made", entries, err)
	}
}

// Rule: without a compiler the error is ErrNoCompiler.
func TestBuildWithoutCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	if _, err := Build(); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("building with no compiler gave %v", err)
	}
	t.Setenv("CC", "false")
	if _, err := Build(); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("building with a compiler that tells no version gave %v", err)
	}
}

// Rule: Build works without a writable cache, and does not trust other users' files in the
// temporary folder.
func TestBuildWithoutCache(t *testing.T) {
	built(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p, err := Build()
	if err != nil || filepath.Dir(filepath.Dir(filepath.Dir(p.Verbs))) != tmp {
		t.Errorf("built %v, %v; want it below %s", p, err, tmp)
	}
	own := filepath.Dir(filepath.Dir(p.Verbs))
	if err := os.Chmod(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if p, err := Build(); err == nil {
		t.Errorf("a folder that others may write to was used: %v", p)
	}
}
