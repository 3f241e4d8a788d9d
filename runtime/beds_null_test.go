//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

var beds = []bed{mainBed, nullBed}

var nullBed = bed{"null", func(t testing.TB, cfg Config, dev int) *Runtime {
	if cfg.Provider == nil {
		cfg.Provider = nullBedProvider(t)
	}
	cfg.Device = [...]string{"null0", "null1"}[dev]
	return mustOpen(t, cfg)
}}

// nullBedProvider is the null device, under its libibverbs and librdmacm loaded
// as the system's are.
func nullBedProvider(t testing.TB) verbs.Provider {
	t.Helper()
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keptDomains(t, paths) })
	if ibv.Live() == 0 { // the first runtime of a test looks at what all have left
		t.Cleanup(func() {
			if n := ibv.Live(); n != 0 {
				t.Errorf("%d objects of ibv are left", n)
			}
		})
	}
	return p
}

// keptDomains fails the test if posts of one thread domain overlapped, ever since
// the null device was loaded: a queue pair was touched by another than the holder
// of its reactor's turn. Real libraries corrupt the queue then, or end the process.
func keptDomains(t testing.TB, paths nulldev.Paths) {
	t.Helper()
	null, err := nulldev.Open(paths)
	if err != nil {
		t.Error(err)
		return
	}
	defer null.Close()
	if n := null.Stats().TDRaces; n != 0 {
		t.Errorf("%d posts of one thread domain overlapped", n)
	}
}
