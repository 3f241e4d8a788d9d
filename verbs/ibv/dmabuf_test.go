//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs/verbstest"
)

// dmabuf makes files that stand for the memory of another device; the null device accepts any
// descriptor that can be mapped.
func dmabuf(t testing.TB) func(int) (*verbstest.DMABuf, error) {
	return func(size int) (*verbstest.DMABuf, error) {
		path := filepath.Join(t.TempDir(), "dmabuf")
		view, err := mem.MapFile(path, size)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, errors.Join(err, view.Unmap())
		}
		closeFD := sync.OnceValue(f.Close)
		return &verbstest.DMABuf{FD: int(f.Fd()), View: view, CloseFD: closeFD,
			Close: sync.OnceValue(func() error { return errors.Join(closeFD(), view.Unmap()) })}, nil
	}
}
