//go:build linux && amd64

package rxevm

import (
	"errors"
	"strings"
	"testing"
)

// Missing tools are named with their packages, and nothing is installed without permission.
func TestMissingToolsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("VERBENA_RXEVM_INSTALL", "")
	for _, err := range []error{Missing(), Install(t.Context(), t.Logf)} {
		if !errors.Is(err, ErrNotHere) {
			t.Fatalf("without any tool: %v, want ErrNotHere", err)
		}
		for _, want := range []string{"qemu-system-x86_64", "apt-get install qemu-system-x86 ", "golang-go", "VERBENA_RXEVM_INSTALL=1"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is more than one line", err)
		}
	}
}

// Where there is no apt-get, Install returns the error of Missing.
func TestInstallNeedsApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("VERBENA_RXEVM_INSTALL", "1")
	if err := Install(t.Context(), t.Logf); !errors.Is(err, ErrNotHere) {
		t.Errorf("without apt-get: %v, want ErrNotHere", err)
	}
}
