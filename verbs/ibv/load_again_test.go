//go:build linux && cgo && !portable

package ibv

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// Rule: a library that could not be loaded, because the process had no descriptor left, is loaded by a later call.
func TestALibraryIsLoadedAfterAFailure(t *testing.T) {
	paths := nullPaths(t)
	p := must.Get(New(Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	var was syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 3 // standard input, output and error
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, without := p.Devices()
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if without == nil {
		t.Error("the libraries were loaded without a descriptor")
	}
	if all, err := p.Devices(); err != nil || len(all) == 0 {
		t.Errorf("with descriptors again: %d devices, %v; want some", len(all), err)
	}
}
