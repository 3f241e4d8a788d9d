package runtime

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// stressOps is how many operations `make test` runs; `make stress` sets
// VERBENA_STRESS_OPS to ten million.
const stressOps = 200_000

const (
	stressLinks   = 4                // connections at a time, each with nine goroutines
	stressHang    = 60 * time.Second // what takes longer hangs
	stressMsgSize = 3000
)

// stress is many goroutines on real time over a link with scripted faults. Each
// link has one session after the other: a connection, goroutines that use it
// in every way, and an end, friendly or not. Each goroutine knows what its own
// operations must have done.
type stress struct {
	t              testing.TB
	seed           uint64
	fab            *fabric.Fabric
	client, server *Runtime
	shared         *Region // words of the server to which everybody adds 1
	target         int64

	// done counts operations that have ended; any goroutine adds.
	done atomic.Int64
	// added, tried and seen: of the shared words; added by workers, read at the end.
	added, tried [stressShared]atomic.Uint64
	seen         [stressShared][]atomic.Uint32 // bits: values that an addition found

	sessions, failed, killed atomic.Int64 // sessions, those that failed by the link, those that we ended badly
	gaveUp                   atomic.Int64 // waits that were cancelled
	lost, late, twice        atomic.Int64 // packets

	mu     sync.Mutex
	broken []string // what went wrong, the first few
}

const stressShared = 2

// fail notes a broken rule; any goroutine.
func (s *stress) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) < 10 {
		s.broken = append(s.broken, fmt.Sprintf(format, args...))
	}
	s.done.Store(s.target) // nobody needs to go on
}

// over tells whether enough has been done.
func (s *stress) over() bool { return s.done.Load() >= s.target }

// Rule: as TestSimulation has it, with real goroutines on real time.
func TestConcurrentStress(t *testing.T) {
	notOnDevice(t, "the weather of its link is a script")
	leak.Check(t)
	seed := fromEnv(t, "VERBENA_STRESS_SEED", uint64(time.Now().UnixNano()))
	s := &stress{t: t, seed: seed, target: int64(fromEnv(t, "VERBENA_STRESS_OPS", stressOps))}
	t.Logf("VERBENA_STRESS_SEED=%d VERBENA_STRESS_OPS=%d", seed, s.target)
	prov := s.open()
	start := time.Now()
	var links sync.WaitGroup
	for i := range stressLinks {
		links.Go(func() { s.link(i) })
	}
	stop := make(chan struct{})
	var weather sync.WaitGroup
	weather.Go(func() { s.weather(stop) })
	links.Wait()
	close(stop)
	weather.Wait()
	for _, b := range s.broken {
		t.Error(b)
	}
	t.Logf("%d operations in %v; %d sessions, %d ended badly by us, %d by the link; %d waits cancelled",
		s.done.Load(), time.Since(start).Round(time.Millisecond), s.sessions.Load(), s.killed.Load(), s.failed.Load(), s.gaveUp.Load())
	t.Logf("packets: %d lost, %d late, %d twice", s.lost.Load(), s.late.Load(), s.twice.Load())
	if s.lost.Load() == 0 || s.late.Load() == 0 || s.twice.Load() == 0 || s.killed.Load() == 0 || s.gaveUp.Load() == 0 {
		t.Error("the run does not show what it should")
	}
	if t.Failed() {
		return // what hangs would hang closing, too
	}
	s.checkShared()
	s.close(prov)
}

// open makes two runtimes on a link of their own.
func (s *stress) open() *soft.Provider {
	s.fab = fabric.New(fabric.Config{Seed: s.seed})
	s.fab.SetTrace(func(ev fabric.Event) {
		switch {
		case ev.Copy:
			s.twice.Add(1)
		case ev.Verdict == fabric.Delayed:
			s.late.Add(1)
		case ev.Verdict != fabric.Delivered:
			s.lost.Add(1)
		}
	}, false)
	prov, err := soft.New(soft.Config{Fabric: s.fab, Devices: []soft.DeviceConfig{
		{Name: "stress0", Addr: netip.MustParseAddr("10.1.0.1"), Limits: soft.Limits{MaxMsgSize: 16 << 10}},
		{Name: "stress1", Addr: netip.MustParseAddr("10.1.0.2"), MTU: verbs.MTU1024, Limits: soft.Limits{MaxMsgSize: 16 << 10}},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	for i, rt := range []**Runtime{&s.client, &s.server} {
		c := Config{Provider: prov, Device: fmt.Sprintf("stress%d", i), Reactors: 2, Memory: MemoryConfig{PoisonFreed: true},
			Conn: Options{SendDepth: 48, RecvCredits: 16, MessageSize: stressMsgSize}}
		if *rt, err = Open(c); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.shared, err = s.server.NewRegion(stressShared*8, verbs.AccessLocalWrite|verbs.AccessRemoteAtomic); err != nil {
		s.t.Fatal(err)
	}
	for i := range s.seen {
		s.seen[i] = make([]atomic.Uint32, s.target/32+1024)
	}
	return prov
}

// weather changes the link's script, and cuts it now and then for less than
// retries last.
func (s *stress) weather(stop <-chan struct{}) {
	r := newSimRand(s.seed)
	gids := []verbs.GID{verbs.GIDFromAddr(s.client.addr), verbs.GIDFromAddr(s.server.addr)}
	for {
		var l fabric.Link
		switch r.IntN(5) {
		case 0:
			l = fabric.Link{Dup: 0.2}
		case 1, 2:
			l = fabric.Link{Loss: 0.002, Dup: 0.01, Reorder: 0.005, ReorderBy: 50 * time.Microsecond}
		case 3:
			l = fabric.Link{Loss: 0.001, Delay: r.span(0, 200*time.Microsecond)}
		}
		s.fab.SetAll(l)
		if r.one(8) {
			s.fab.Partition(gids[:1], gids[1:])
		}
		if !s.lasts(stop, int64(r.IntN(int(s.target)/weathers)), r.span(10*time.Millisecond, 120*time.Millisecond)) {
			s.fab.Heal()
			s.fab.SetAll(fabric.Link{})
			return
		}
		s.fab.Heal()
	}
}

// weathers is how many there are in a run, at least: however fast it is, it meets them
// all.
const weathers = 32

// lasts waits until that many operations more are done, at most so long; false: stop.
func (s *stress) lasts(stop <-chan struct{}, ops int64, most time.Duration) bool {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	end := time.After(most)
	for until := s.done.Load() + ops; s.done.Load() < until; {
		select {
		case <-stop:
			return false
		case <-end:
			return true
		case <-look.C:
		}
	}
	return true
}

// countShared notes a successful addition that found v.
func (s *stress) countShared(i int, v uint64) {
	s.added[i].Add(1)
	w, bit := v/32, uint32(1)<<(v%32)
	if w >= uint64(len(s.seen[i])) {
		s.fail("counter %d: an addition found %d, more than anybody tried", i, v)
	} else if s.seen[i][w].Or(bit)&bit != 0 {
		s.fail("counter %d: two additions found %d", i, v)
	}
}

func (s *stress) checkShared() {
	for i := range s.added {
		v, ok, tried := binary.NativeEndian.Uint64(s.shared.Bytes()[i*8:]), s.added[i].Load(), s.tried[i].Load()
		if v < ok || v > tried {
			s.t.Errorf("counter %d is %d after %d successful additions of %d", i, v, ok, tried)
		}
	}
}

// close gives everything back; nothing may be left.
func (s *stress) close(prov *soft.Provider) {
	ctx, cancel := context.WithTimeout(context.Background(), stressHang)
	defer cancel()
	for _, rt := range []*Runtime{s.client, s.server} {
		dev := rt.dev
		st := rt.Stats()
		if st.Stale != 0 || st.Stranded != 0 || st.PostFailures != 0 {
			s.t.Logf("%d stale completions, %d stranded operations, %d lists cut", st.Stale, st.Stranded, st.PostFailures)
		}
		if m := rt.MemoryStats(); m.Buffers != 0 {
			s.t.Errorf("%d buffers are out", m.Buffers)
		}
		if err := rt.Close(ctx); err != nil {
			s.t.Errorf("closing: %v", err)
		} else if o := dev.Objects(); !o.Zero() {
			s.t.Errorf("left behind: %v", o)
		}
	}
	if o := prov.CMObjects(); !o.Zero() {
		s.t.Errorf("the connection manager has left %v", o)
	}
}
