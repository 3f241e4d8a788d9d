//go:build linux && !portable

package sys

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// TestInodeIsTheFile: two descriptors on a file have one identity, which is not reused when the
// file is removed and another one made; a descriptor that is not open has none.
func TestInodeIsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domain")
	hold := func() *Inode {
		t.Helper()
		f := must.Get(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))(t)
		defer f.Close()
		i := must.Get(HoldInode(int(f.Fd())))(t)
		t.Cleanup(func() { i.Close() })
		return i
	}
	a, b := hold(), hold()
	if a.ID() != b.ID() {
		t.Fatalf("the same file is %v and %v", a.ID(), b.ID())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := hold(); c.ID() == a.ID() {
		t.Fatalf("a new file has the identity of one that is still held: %v", c.ID())
	}
	if _, err := HoldInode(-1); !errors.Is(err, syscall.EBADF) {
		t.Fatalf("no descriptor: %v, want EBADF", err)
	}
}
