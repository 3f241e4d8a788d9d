package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// An output file of a test binary gets another name in the machine and is copied back to the
// requested place; other arguments stay unchanged.
func TestOutputsComeOut(t *testing.T) {
	here, host, out := t.TempDir(), t.TempDir(), t.TempDir()
	r := &rewriter{here: here, host: host, guest: "/verbena/job"}
	cover, gocover, conf := filepath.Join(out, "c.out"), filepath.Join(out, "cov"), filepath.Join(out, "conf")
	args := r.arguments([]string{"-test.v=true", "-test.coverprofile=" + cover, "--test.cpuprofile", "cpu.prof",
		"-test.outputdir=" + out, "-test.gocoverdir=" + gocover, "-test.run=^TestX$", "--", "-test.trace=mine"})
	want := []string{"-test.v=true", "-test.coverprofile=/verbena/job/out-0", "--test.cpuprofile", "/verbena/job/out-1",
		"-test.outputdir=/verbena/job/out-2", "-test.gocoverdir=/verbena/job/out-3", "-test.run=^TestX$", "--", "-test.trace=mine"}
	if !slices.Equal(args, want) {
		t.Errorf("rewritten as\n%q, want\n%q", args, want)
	}
	env := r.environment([]string{"VERBENA_SEED=7", "VERBENA_CONFORMANCE_OUT=" + conf, "GOCOVERDIR="})
	if want := []string{"VERBENA_SEED=7", "VERBENA_CONFORMANCE_OUT=/verbena/job/out-4", "GOCOVERDIR="}; !slices.Equal(env, want) {
		t.Errorf("environment %q, want %q", env, want)
	}
	// The program writes all but the trace of the CPU.
	for name, text := range map[string]string{"out-0": "mode: set\n", "out-3/covmeta": "m", "out-4/a/b.json": "{}"} {
		file := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	if err := r.bringBack(); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{cover: "mode: set\n", filepath.Join(gocover, "covmeta"): "m", filepath.Join(conf, "a/b.json"): "{}"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s has %q, %v; want %q", file, got, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "cpu.prof")); err == nil {
		t.Error("a profile that was not written came out")
	}
}

// Without an output folder a relative name is relative to the working folder.
func TestRelativeOutputs(t *testing.T) {
	r := &rewriter{here: "/w", host: t.TempDir(), guest: "/g"}
	r.arguments([]string{"-test.coverprofile=c.out"})
	if len(r.moves) != 1 || r.moves[0].to != "/w/c.out" {
		t.Errorf("moves %+v, want /w/c.out", r.moves)
	}
}

// The machine's commands get variables that configure the tests, but not names of this system's
// devices or this command's settings.
func TestEnvironmentThatGoesIn(t *testing.T) {
	got := passed([]string{"HOME=/root", "PATH=/bin", "VERBENA_SEED=1", "VERBENA_RXEVM=/s", "VERBENA_RXEVM_CACHE=/c",
		"VERBENA_TEST_DEVICES=mlx5_0", "GODEBUG=x=1", "VERBENA_STRESS_OPS=5"})
	if want := []string{"VERBENA_SEED=1", "GODEBUG=x=1", "VERBENA_STRESS_OPS=5"}; !slices.Equal(got, want) {
		t.Errorf("%q goes in, want %q", got, want)
	}
}
