//go:build linux && !portable

package soft

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestXRCDOfAFile: contexts of a device share a domain by the file's inode.
func TestXRCDOfAFile(t *testing.T) {
	x := newXRC(t)
	path := filepath.Join(t.TempDir(), "domain")
	f := must.Get(os.Create(path))(t)
	again := must.Get(os.Open(path))(t)
	defer again.Close()
	other := must.Get(x.p.Open("b"))(t)
	open := func(c verbs.Context, f *os.File, flags int, errno syscall.Errno) verbs.XRCD {
		t.Helper()
		d, err := c.OpenXRCD(int(f.Fd()), flags)
		if (errno == 0) != (err == nil) || (errno != 0 && !errors.Is(err, errno)) {
			t.Fatalf("flags 0x%x: %v, want errno %d", flags, err, errno)
		}
		return d
	}
	open(x.b.ctx, f, 0, syscall.EAGAIN)
	first := open(x.b.ctx, f, os.O_CREATE|os.O_EXCL, 0)
	must.Do(t, f.Close()) // the domain keeps the file
	open(other, again, os.O_CREATE|os.O_EXCL, syscall.EINVAL)
	second := open(other, again, 0, 0)
	open(other, again, os.O_RDWR|os.O_TRUNC, syscall.EINVAL)
	if _, err := other.OpenXRCD(1<<20, os.O_CREATE); !errors.Is(err, syscall.EBADF) {
		t.Fatalf("no such descriptor: %v, want EBADF", err)
	}
	q := must.Get(first.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTXRCRecv}))(t)
	shared := must.Get(second.OpenQP(q.Num(), 1))(t)
	if _, err := x.dom.OpenQP(q.Num(), 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("opening a queue pair of another domain: %v, want ErrInvalid", err)
	}
	must.Do(t, q.Close())
	must.Do(t, first.Close())
	must.Do(t, first.Close())
	if n := other.Objects(); n.QP != 1 || n.XRCD != 1 {
		t.Fatalf("alive in the other context: %v, want its handles", n)
	}
	if a, err := shared.Query(); err != nil || a.State != verbs.QPSReset {
		t.Fatalf("the queue pair, made by another context: %v, %v", a.State, err)
	}
	must.Do(t, shared.Close())
	must.Do(t, second.Close())
	third := open(other, again, os.O_CREATE|os.O_EXCL, 0) // the first has ended
	must.Do(t, third.Close())
	must.Do(t, other.Close())
}
