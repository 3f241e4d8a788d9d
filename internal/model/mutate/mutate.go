//go:build verbena_model

package mutate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
)

// Mutant is a package with a mistake that a world notices.
type Mutant struct {
	name, want string
	world      func() model.World
	edits      []edit
}

type edit struct{ file, old, new string }

// New returns a mutant without edits. Its world must break a rule whose message matches want.
func New(name, want string, world func() model.World) *Mutant {
	return &Mutant{name: name, want: want, world: world}
}

// In edits a file of the package: old, which must occur there exactly once, also after the edits
// before it, becomes new. The word MUTANT in new is true while this mutant is tested, so that one
// build contains all mutants.
func (m *Mutant) In(file, old, new string) *Mutant {
	m.edits = append(m.edits, edit{file, old, new})
	return m
}

// built is set in the process that was built with the mutants.
const built = "VERBENA_MUTANTS"

// Test fails if a mutant breaks no rule of its world. It builds the calling test's package once
// more, with all the edits in an overlay, and runs the test there.
func Test(t *testing.T, mutants ...*Mutant) {
	t.Helper()
	if os.Getenv(built) != "" {
		for _, m := range mutants {
			model.Mutant = m.name
			model.Breaks(t, m.name, m.want, m.world)
		}
		return
	}
	texts, dir := map[string]string{}, t.TempDir()
	for _, m := range mutants {
		for _, e := range m.edits {
			if _, ok := texts[e.file]; !ok {
				texts[e.file] = read(t, e.file)
			}
			if n := strings.Count(texts[e.file], e.old); n != 1 {
				t.Fatalf("%s: %q occurs %d times in %s, want once", m.name, e.old, n, e.file)
			}
			is := strings.ReplaceAll(e.new, "MUTANT", fmt.Sprintf("(model.Mutant == %q)", m.name))
			texts[e.file] = strings.Replace(texts[e.file], e.old, is, 1)
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		original, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = write(t, dir, file, []byte(text))
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", write(t, dir, "overlay.json", list),
		"-tags", "verbena_model", "-count=1", "-vet=off", "-v", "-run", "^"+t.Name()+"$", ".")
	cmd.Env = append(os.Environ(), built+"=1")
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("with the mutants: %v", err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, dir, file string, b []byte) (path string) {
	t.Helper()
	path = filepath.Join(dir, file)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
