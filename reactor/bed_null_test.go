//go:build linux && cgo && !portable

package reactor_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
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

// profiled opens the first device of nullBed as the driver of the given name has it (nulldev's profiles).
func profiled(name string) func(testing.TB) verbs.Context {
	return func(t testing.TB) verbs.Context {
		t.Helper()
		ctx := nullBed.open(t, 0) // builds the libraries, or skips the test
		must.Do(t, ctx.Close())
		null := must.Get(nulldev.Open(must.Get(nulldev.Build())(t)))(t)
		defer null.Close()
		must.Do(t, null.SetProfile(name))
		return nullBed.open(t, 0)
	}
}

var moreRoomCases = map[string]roomCase{
	// Of each kind three completion queues are made, of 8191, 16382 and 24573 entries: room for 2, 4 and 6 Queues'
	// sends, and for 1, 3 and 4 Queues' receives.
	"without ibv_resize_cq": {open: profiled("hns"), made: 6, want: 1 + 3 + 4, wantGrown: 2 * 2},
	// 16383 entries are granted: room for the receives of 3 Queues. With 9000 there would be room for one.
	"granting more": {open: profiled("mlx5"), made: 4, entries: 9000, want: 3},
}

// Rule: a driver that adds an entry to those asked for, and rounds up to a power of two (mlx5), makes no completion
// queue with room for twice the entries, neither at first nor when it is resized.
func TestCompletionQueuesFitTheirRings(t *testing.T) {
	l := newLoneOn(t, profiled("mlx5")(t), reactor.Config{}, nil)
	defer l.close(t)
	for _, want := range []int{reactor.DefaultCQEntries, 2*reactor.DefaultCQEntries + 1} {
		q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, SendDepth: roomSends - 1, RecvDepth: roomRecvs}))(t)
		l.do(t, func() { must.Do(t, q.Admit()) })
		defer func() { l.do(t, func() { must.Do(t, q.Release(errOver)) }) }()
		if got := q.InitAttr().RecvCQ.Capacity(); got != want {
			t.Errorf("the completion queue has %d entries, want %d", got, want)
		}
	}
}
