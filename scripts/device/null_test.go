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
	b := &bench{sys: "/", ends: [2]target{{p, "null0"}, {p, "null1"}}, conns: 20, limit: time.Minute, grace: leftBehind, mask: newMasker()}
	r := b.report()
	b.mask.report(r)
	complete(t, r)
	if fork := r.Place.Process.Fork; fork.Value == nil {
		t.Errorf("the fork status is unknown: %s", fork.Unknown)
	}
	if libraries := r.Place.Programs.Libraries; libraries.Value == nil || len(*libraries.Value) < 2 {
		t.Errorf("the loaded libraries are %+v, want those of the null device", libraries)
	}
}

// Rule: on every profile of the null device each item has a value or a reason, and the limits found are those that
// the driver grants, whether it refuses more or grants less.
func TestReportOfEveryProfile(t *testing.T) {
	paths, err := nulldev.Build()
	if errors.Is(err, nulldev.ErrNoCompiler) {
		t.Skipf("%v (Debian: apt-get install gcc)", err)
	}
	must.Do(t, err)
	null := must.Get(nulldev.Open(paths))(t)
	defer null.Close()
	defer func() { must.Do(t, null.SetProfile(nulldev.Plain)) }()
	p := must.Get(ibv.New(ibv.Config{Verbs: paths.Verbs, RDMACM: paths.RDMACM}))(t)
	inline := map[string]int{"irdma": 101, "iwarp": 48, "bnxt_re": 96, "erdma": 96, "siw": 80}
	elements := map[string]int{"irdma": 13, "iwarp": 3, "erdma": 6, "siw": 6}
	for _, name := range null.Profiles() {
		if name == "mlx5_vf" { // as mlx5, but each of some 500 calls takes milliseconds
			continue
		}
		t.Run(name, func(t *testing.T) {
			must.Do(t, null.SetProfile(name))
			b := &bench{sys: "/", ends: [2]target{{p, "null0"}, {p, "null1"}}, conns: 5, limit: 5 * time.Second, grace: leftBehind, mask: newMasker()}
			r := &Report{Place: b.place(t.Context()), Granted: b.granted(t.Context())}
			r.Granted.Pinned = b.pinned(t.Context())
			c, _ := b.allConnections()
			r.Agreed.Ends, r.Granted.Connections, r.Timed.AtOnce, r.Counted.Stats = c.ends, c.pinned, c.burst, c.stats
			r.Agreed.RetryExc, r.Counted.Counters, r.Counted.Events = unknown[RetryExc]("not asked"), unknown[[]Counter]("not asked"), b.asyncEvents()
			r.Deviations = deviations("")
			blanks(t, r)
			l := r.Granted.Limits
			if name == "efa" {
				if len(l) > 0 && l[0].Unknown == "" {
					t.Errorf("the largest values of RC are %+v, want the reason why there are none", l[0])
				}
				return
			}
			if want := inline[name]; want != 0 && l[0].Inline != want {
				t.Errorf("the largest inline size is %d, want %d", l[0].Inline, want)
			}
			if want := elements[name]; want != 0 && l[0].SendSGE != want {
				t.Errorf("the most elements are %d, want %d", l[0].SendSGE, want)
			}
			if name == "hns" && l[0].Inline == mostInline {
				t.Errorf("the largest inline size is %d, which the driver does not refuse and does not grant", l[0].Inline)
			}
		})
	}
}
