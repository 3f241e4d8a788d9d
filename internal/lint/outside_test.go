package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program outside this module can use verbs alone, as the example without runtime does: copied
// into a module of its own, it builds and runs.
func TestVerbsAloneOutsideTheModule(t *testing.T) {
	dir, out := root(t), t.TempDir()
	for to, from := range map[string]string{"main.go": "examples/07-verbs-alone/main.go", "go.sum": "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(from)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(out, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "module example.com/outside\n\ngo 1.26\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + dir + "\n"
	if err := os.WriteFile(filepath.Join(out, "go.mod"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir = out
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-buildvcs=false", "VERBENA_DEVICE=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "b received ") {
		t.Errorf("outside: %v, it printed %q", err, out)
	}
}
