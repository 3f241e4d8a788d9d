package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// The README's program builds and runs unchanged.
func TestReadmeProgram(t *testing.T) {
	dir := root(t)
	text := must.Get(os.ReadFile(filepath.Join(dir, "README.md")))(t)
	_, rest, ok := bytes.Cut(text, []byte("```go\n"))
	program, _, closed := bytes.Cut(rest, []byte("```\n"))
	if !ok || !closed {
		t.Fatal("README.md has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, program, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", file)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello over RDMA\n" {
		t.Errorf("the README's program: %v, it printed %q", err, out)
	}
}

// link matches the target of a Markdown link that is neither a URL nor an anchor.
var link = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`)

// Links between documents, and from them into the tree, have existing targets.
func TestLinks(t *testing.T) {
	dir := root(t)
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md"} {
		files := must.Get(filepath.Glob(filepath.Join(dir, pattern)))(t)
		for _, f := range files {
			text := must.Get(os.ReadFile(f))(t)
			for _, m := range link.FindAllSubmatch(text, -1) {
				found++
				to := filepath.Join(filepath.Dir(f), filepath.FromSlash(string(m[1])))
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s links to %s: %v", strings.TrimPrefix(f, dir+"/"), m[1], err)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no link was found: the pattern is wrong")
	}
}
