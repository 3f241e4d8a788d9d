package ibv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// compiler returns the C compiler; without one it skips the test with a message. The compiler is
// the one that cgo itself needs.
func compiler(t testing.TB) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		t.Skipf("no C compiler: %v (Debian: apt-get install gcc)", err)
	}
	return path
}

// compile runs the compiler on a text and returns its output.
func compile(t *testing.T, text string, args ...string) (output string, err error) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "test.c")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), compiler(t), append(args, src)...).CombinedOutput()
	return string(out), err
}

// library compiles a text to a shared library and returns its path.
func library(t *testing.T, text string) string {
	t.Helper()
	so := filepath.Join(t.TempDir(), "lib.so")
	if out, err := compile(t, text, "-shared", "-fPIC", "-Iabi", "-o", so); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return so
}
