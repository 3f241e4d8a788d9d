//go:build linux && cgo && !portable

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: a run on the null device, which is driven through libibverbs's calls as hardware is, has every section.
func TestReportOfTheNullDevice(t *testing.T) {
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	must.Do(t, err)
	p := must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	b := &bench{sys: "/", ends: [2]target{{p, "null0"}, {p, "null1"}}, conns: 20, limit: time.Minute, grace: leftBehind}
	r := b.report()
	newMasker().report(r)
	complete(t, r)
	if fork := r.Place.Process.Fork; fork.Value == nil {
		t.Errorf("the fork status is unknown: %s", fork.Unknown)
	}
	if libraries := r.Place.Programs.Libraries; libraries.Value == nil || len(*libraries.Value) < 2 {
		t.Errorf("the loaded libraries are %+v, want those of the null device", libraries)
	}
}
