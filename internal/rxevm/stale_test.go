//go:build linux

package rxevm

import (
	"os"
	"path/filepath"
	"testing"
)

// Rule: the folder of a killed process is removed at the next start; that of a living one, and
// other folders, are not.
func TestFoldersOfKilledProcessesAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	other := filepath.Join(temp, "rxevm-other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	alive, lock, err := ownFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	killed, dead, err := ownFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // as the kernel does when it kills a process
		t.Fatal(err)
	}
	last, lock, err := ownFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, dir := range []string{other, alive, last} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("removed, and not a dead owner's: %v", err)
		}
	}
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("%s is left of a dead owner: %v", killed, err)
	}
}
