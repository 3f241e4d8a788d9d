//go:build linux && cgo && !portable

package ibv

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: the null device counts posts of one thread domain that overlap, and none that follow one
// another: the tests of invariant 2 depend on it.
func TestOverlappingPostsOfAThreadDomainAreCounted(t *testing.T) {
	r := newRig(t, Config{})
	td := must.Get(r.ctx.AllocTD())(t)
	t.Cleanup(func() { must.Do(t, td.Close()) })
	own := must.Get(r.pd.AllocParentDomain(td))(t)
	t.Cleanup(func() { must.Do(t, own.Close()) })
	// A post copies its data: half of this takes milliseconds.
	arena := must.Get(mem.Map(32<<20, mem.Options{}))(t)
	t.Cleanup(func() { must.Do(t, arena.Unmap()) })
	mr := must.Get(own.RegMR(arena.Addr(), uint64(arena.Len()), arena.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	t.Cleanup(func() { must.Do(t, mr.Close()) })

	qps := [2]*queuePair{r.loop(own), r.loop(own)}
	post := func(i int) {
		const half = 16 << 20
		sge, ok := mem.At[verbs.SGE](r.arena, r.sge+uint64(i+1)*verbs.SizeofSGE)
		if !ok {
			t.Error("no room for an element")
			return
		}
		*sge = verbs.SGE{Addr: mr.Addr(), Length: half, LKey: mr.LKey()}
		w := &r.sends[i]
		*w = verbs.SendWR{SGList: addr(sge), NumSGE: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
		w.SetRDMA(mr.Addr()+half, mr.RKey())
		if _, err := verbs.PostSend(qps[i], addr(w), 1); err != nil {
			t.Error(err)
		}
	}
	before := r.null.Stats().TDRaces
	for i := range 4 {
		post(i % 2)
	}
	if n := r.null.Stats().TDRaces; n != before {
		t.Errorf("%d posts that follow one another count as overlapping", n-before)
	}
	r.poll(4)
	const rounds = 100 // one overlap among them is enough
	for range rounds {
		var wg sync.WaitGroup
		for i := range qps {
			wg.Go(func() { post(i) })
		}
		wg.Wait()
		r.poll(2)
		if r.null.Stats().TDRaces > before {
			return
		}
	}
	t.Error("posts of milliseconds from two goroutines at once count as following one another")
}

// Rule: in the profile mlx5 the null device ends the process at such an overlap, as libmlx5 does.
func TestOverlappingPostsOfAThreadDomainEndTheProcess(t *testing.T) {
	nullPaths(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOverlappingPostsOfAThreadDomainAreCounted$")
	cmd.Env = append(os.Environ(), "VERBENA_NULLDEV_PROFILE=mlx5")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("two posts of one thread domain at the same time")) || !bytes.Contains(out, []byte("SIGABRT")) {
		t.Errorf("the process ended with %v and said %.200q, want SIGABRT and the reason", err, out)
	}
}

// Rule: closing a domain that another one uses is refused here, without a call to the library:
// libraries differ in what they refuse.
func TestParentsOfADomainAreKeptWithoutTheLibrary(t *testing.T) {
	r := newRig(t, Config{})
	td := must.Get(r.ctx.AllocTD())(t)
	base := must.Get(r.ctx.AllocPD())(t)
	own := must.Get(base.AllocParentDomain(td))(t)
	for call, o := range map[string]verbs.Object{"ibv_dealloc_td": td, "ibv_dealloc_pd": base} {
		before := r.null.Calls(call)
		if err := o.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closing %v: %v, want ErrBusy", o, err)
		}
		if n := r.null.Calls(call); n != before {
			t.Errorf("%s was called", call)
		}
	}
	must.Do(t, errors.Join(own.Close(), td.Close(), base.Close()))
}
