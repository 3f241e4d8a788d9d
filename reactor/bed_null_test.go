//go:build linux && cgo && !portable

package reactor_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// moreBeds lists the beds that onBeds uses besides home().
var moreBeds = []bed{nullBed}

// nullBed opens the null device through package ibv. Package ibv loads the libibverbs and the librdmacm
// that nulldev.Build makes, instead of the system's libraries.
var nullBed = bed{"null", func(t testing.TB, dev int) verbs.Context {
	t.Helper()
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	must.Do(t, err)
	p := must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	return must.Get(p.Open([...]string{"null0", "null1"}[dev]))(t)
}}
