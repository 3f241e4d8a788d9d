package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

const (
	stressLinks   = 4                // concurrent sessions, each with up to nine goroutines
	stressHang    = 60 * time.Second // if a session or a Close takes longer, the test fails
	stressMsgSize = 3000             // of a receive
	stressLargest = 12_000           // of a message
)

// stress runs many goroutines in real time over a fabric with random faults. At any time there are
// stressLinks sessions. A session is a connection and the goroutines that use the connection. Some
// sessions end abruptly. Each goroutine knows the expected effect of its own operations.
type stress struct {
	t              testing.TB
	seed           uint64
	fab            *fabric.Fabric
	client, server *Runtime
	shared         *Region // memory of the server: words to which the workers of all sessions add 1
	target         int64

	// done counts operations that have ended. Any goroutine increments it.
	done atomic.Int64
	// added[i] counts the successful additions to shared word i; tried[i] counts all additions. The
	// workers write these fields; the test reads them at the end.
	added, tried [stressShared]atomic.Uint64
	seen         [stressShared][]atomic.Uint32 // bit v of seen[i] is set if an addition to word i found the value v

	// Numbers of sessions: all sessions, the sessions that link faults ended, and the sessions that the
	// test ended abruptly.
	sessions, failed, killed atomic.Int64
	gaveUp                   atomic.Int64 // number of waits that timed out
	lost, late, twice        atomic.Int64 // numbers of lost, delayed and duplicated packets

	mu     sync.Mutex
	broken []string // the first ten errors
}

const stressShared = 2

// stress.fail records a broken rule. Any goroutine may call it.
func (s *stress) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) < 10 {
		s.broken = append(s.broken, fmt.Sprintf(format, args...))
	}
	s.done.Store(s.target) // ends the run
}

// stress.over reports whether enough operations are done.
func (s *stress) over() bool { return s.done.Load() >= s.target }

// Rule: even if many goroutines use a faulty link at the same time, each operation completes exactly
// once, and each successful operation has its effect exactly once. Messages arrive in order. Nothing is
// written to memory whose lease has ended. In the end no object is left. (TestSimulation checks this on
// one goroutine, in virtual time.)
func TestConcurrentStress(t *testing.T) {
	notOnDevice(t, "the test needs a link with faults")
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
	var faults sync.WaitGroup
	faults.Go(func() { s.changeFaults(stop) })
	links.Wait()
	close(stop)
	faults.Wait()
	for _, b := range s.broken {
		t.Error(b)
	}
	t.Logf("%d operations in %v; %d sessions: the test ended %d abruptly, and link faults ended %d; %d waits timed out",
		s.done.Load(), time.Since(start).Round(time.Millisecond), s.sessions.Load(), s.killed.Load(), s.failed.Load(), s.gaveUp.Load())
	t.Logf("packets: %d lost, %d delayed, %d duplicated", s.lost.Load(), s.late.Load(), s.twice.Load())
	if s.lost.Load() == 0 || s.late.Load() == 0 || s.twice.Load() == 0 || s.killed.Load() == 0 || s.gaveUp.Load() == 0 {
		t.Error("want at least one lost, one delayed and one duplicated packet, one session that the test ended, and one wait that timed out")
	}
	if t.Failed() {
		return // if an operation hangs, closing the runtimes would hang, too
	}
	s.checkShared()
	s.close(prov)
}

// stress.open makes two runtimes on a fabric of their own.
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
			Conn: Options{SendDepth: 48, RecvCredits: int(s.seed%2) * 16, MessageSize: stressMsgSize}}
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

// stress.changeFaults changes the faults of the fabric from time to time. Sometimes it also cuts the
// link, but for less time than the device's retries last.
func (s *stress) changeFaults(stop <-chan struct{}) {
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
		if !s.lasts(stop, int64(r.IntN(int(s.target)/minFaultChanges)), r.span(10*time.Millisecond, 120*time.Millisecond)) {
			s.fab.Heal()
			s.fab.SetAll(fabric.Link{})
			return
		}
		s.fab.Heal()
	}
}

// minFaultChanges is the least number of times that changeFaults changes the faults in a run. So even a
// fast run has faults of all kinds.
const minFaultChanges = 32

// stress.lasts waits until the given number of operations have ended since its call, or until the limit
// has passed. Then it returns true. If stop is closed first, it returns false at once.
func (s *stress) lasts(stop <-chan struct{}, ops int64, limit time.Duration) bool {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	end := time.After(limit)
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

// countShared records a successful addition to shared word i. The addition found the value v.
func (s *stress) countShared(i int, v uint64) {
	s.added[i].Add(1)
	w, bit := v/32, uint32(1)<<(v%32)
	if w >= uint64(len(s.seen[i])) {
		s.fail("shared word %d: an addition found %d, want less than %d", i, v, 32*len(s.seen[i]))
	} else if s.seen[i][w].Or(bit)&bit != 0 {
		s.fail("shared word %d: two additions found the value %d, want only one", i, v)
	}
}

func (s *stress) checkShared() {
	for i := range s.added {
		v, ok, tried := binary.NativeEndian.Uint64(s.shared.Bytes()[i*8:]), s.added[i].Load(), s.tried[i].Load()
		if v < ok || v > tried {
			s.t.Errorf("shared word %d is %d, want from %d (successful additions) to %d (all additions)", i, v, ok, tried)
		}
	}
}

// stress.close closes both runtimes and checks that nothing is left.
func (s *stress) close(prov *soft.Provider) {
	ctx, cancel := context.WithTimeout(context.Background(), stressHang)
	defer cancel()
	for _, rt := range []*Runtime{s.client, s.server} {
		dev := rt.dev
		st := rt.Stats()
		if st.Stale != 0 || st.Stranded != 0 || st.PostFailures != 0 {
			s.t.Logf("%d stale completions, %d stranded sends, %d lists that the device refused wholly or in part", st.Stale, st.Stranded, st.PostFailures)
		}
		if m := rt.MemoryStats(); m.Buffers != m.Receives {
			s.t.Errorf("%d pool buffers were not released, want 0", m.Buffers-m.Receives)
		}
		if err := rt.Close(ctx); err != nil {
			s.t.Errorf("Runtime.Close: %v, want nil", err)
		} else if o := dev.Objects(); !o.Zero() {
			s.t.Errorf("after Runtime.Close, objects of the device are left: %v", o)
		}
	}
	if o := prov.CMObjects(); !o.Zero() {
		s.t.Errorf("after Runtime.Close, objects of the connection manager are left: %v", o)
	}
}

// session is one connection of the stress test and the goroutines that use the connection.
type session struct {
	s        *stress
	name     string
	ends     [2]*Conn // ends[0] is the client, ends[1] the server
	region   *Region  // memory of the server, with a part for each worker
	remote   Remote
	ctx      context.Context // for all waits that have no shorter limit
	streams  [2]stressStream // streams[i] has the messages that ends[i] sends
	budget   atomic.Int64    // how many operations may still begin
	stopping atomic.Bool     // no operation may begin any more
	// If excused is set, operations may fail. session.kill sets excused before it makes operations fail.
	excused atomic.Bool
	// lost is set when an operation fails. The session then ends.
	lost    atomic.Bool
	retried atomic.Bool // an operation failed because its retries were used up
}

// stressStream counts the messages in one direction. The sender sets s.finished after its last change
// of s.accepted. The receiver loads s.finished before it loads s.accepted. So if the receiver finds
// s.finished set, it then loads the final count.
type stressStream struct {
	accepted atomic.Int64
	finished atomic.Bool // accepted is final
	received int64       // owned by the receiver
}

// stress.link runs one session after another until enough operations are done.
func (s *stress) link(i int) {
	for n := 0; !s.over(); n++ {
		ses := &session{s: s, name: fmt.Sprintf("session %d.%d", i, n)}
		ses.run(newSimRand(s.seed + uint64(i)<<32 + uint64(n)<<8))
	}
}

func (ses *session) fail(format string, args ...any) {
	ses.s.fail("%s: %s", ses.name, fmt.Sprintf(format, args...))
	ses.lost.Store(true)
}

func (ses *session) run(r simRand) {
	s := ses.s
	ctx, cancel := context.WithTimeout(context.Background(), stressHang)
	defer cancel()
	ses.ctx = ctx
	if !ses.connect() {
		return
	}
	s.sessions.Add(1)
	all := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	var err error
	if ses.region, err = s.server.NewRegion(stressWorkers*partSize, all); err != nil {
		ses.fail("registering the region of the session: %v", err)
		return
	}
	mem.Poison(ses.region.Bytes())
	if ses.remote, err = ses.region.Remote(0, ses.region.Len()); err != nil {
		ses.fail("describing the region of the session: %v", err)
		return
	}
	ses.budget.Store(int64(r.between(100, 4000)))
	ending := r.IntN(5)
	seed := r.Uint64()

	var using, receiving sync.WaitGroup
	workers := make([]*worker, stressWorkers)
	for i := range workers {
		workers[i] = newWorker(ses, i, newSimRand(seed+uint64(i)))
		using.Go(workers[i].run)
	}
	for side := range ses.ends {
		using.Go(func() { ses.send(side, newSimRand(seed+100+uint64(side))) })
		receiving.Go(func() { ses.receive(1-side, newSimRand(seed+200+uint64(side))) })
	}
	if ending > 0 {
		using.Go(func() { ses.kill(ending) })
	}
	using.Wait()
	if ses.lost.Load() || ses.excused.Load() {
		ses.abort()
	}
	receiving.Wait()
	ses.close(workers)
}

// session.connect dials and accepts. It returns false if the connection was not established. If the
// reason is not the loss of packets, it also records an error.
func (ses *session) connect() bool {
	s := ses.s
	l, err := s.server.Listen(":0")
	if err != nil {
		ses.fail("listening: %v", err)
		return false
	}
	var accepting sync.WaitGroup
	var aerr error
	accepting.Go(func() { ses.ends[1], aerr = l.Accept(ses.ctx) })
	c, err := s.client.Dial(ses.ctx, l.Addr().String())
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			ses.fail("dialing hangs: %v", err)
		}
		if cerr := l.Close(ses.ctx); cerr != nil {
			ses.fail("closing the listener: %v", cerr)
		}
	}
	ses.ends[0] = c
	accepting.Wait()
	if err == nil {
		if cerr := l.Close(ses.ctx); cerr != nil {
			ses.fail("closing the listener: %v", cerr)
		}
	}
	if err == nil && aerr == nil {
		return true
	}
	for _, c := range ses.ends {
		if c != nil {
			_ = c.Close(ses.ctx) // ignore the error: the other end was not established
		}
	}
	if !errors.Is(err, ErrConnectTimeout) && !errors.Is(err, ErrUnreachable) && !errors.Is(aerr, ErrConnectTimeout) && !errors.Is(aerr, ErrUnreachable) {
		ses.fail("dialing: %v; accepting: %v; want ErrConnectTimeout or ErrUnreachable from one of them", err, aerr)
	}
	return false
}

// session.spend takes one operation from the budget. It returns false if no operation may begin
// any more.
func (ses *session) spend() bool {
	if ses.lost.Load() || ses.stopping.Load() || ses.budget.Add(-1) < 0 || ses.s.over() {
		ses.stopping.Store(true)
		return false
	}
	return true
}

// session.failed handles the error of an operation. The error ends the session. session.close checks
// that the session had a permitted reason to fail.
func (ses *session) failed(what string, err error) {
	var wc *verbs.WCError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		ses.fail("%s hangs: %v", what, err)
	case errors.As(err, &wc) && wc.Status == verbs.WCRetryExcErr:
		ses.retried.Store(true)
	}
	ses.lost.Store(true)
}

// session.kill ends the session abruptly, while goroutines use the connection.
func (ses *session) kill(how int) {
	for !ses.stopping.Load() && !ses.lost.Load() {
		select {
		case <-ses.ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
		if ses.budget.Load() < 50 {
			break
		}
	}
	ses.excused.Store(true)
	ses.s.killed.Add(1)
	end := ses.ends[how%2]
	switch how {
	case 1, 2:
		end.Abort()
	case 3: // moves the queue pair to ERR, as a device does when it gives up
		err := end.sh.r.Do(ses.ctx, func() {
			if qp := end.q.QP(); end.state == connOpen {
				// Ignore the error: Modify fails if the queue pair was destroyed.
				_ = qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
			}
		})
		if err != nil {
			ses.fail("moving the queue pair to ERR: Reactor.Do: %v", err)
		}
	default:
		ctx, cancel := context.WithTimeout(ses.ctx, time.Millisecond)
		defer cancel()
		if err := end.Close(ctx); err != nil {
			ses.fail("Conn.Close with a context of 1 ms: %v", err)
		}
	}
}

// session.abort aborts both ends, so that the receiving goroutines return.
func (ses *session) abort() {
	for _, c := range ses.ends {
		c.Abort()
	}
}

// session.close closes both ends of the connection, and checks the session and the memory.
func (ses *session) close(workers []*worker) {
	for i, c := range ses.ends {
		if err := c.Close(ses.ctx); err != nil {
			ses.fail("closing end %d: %v", i, err)
		}
	}
	bad := ses.lost.Load()
	switch {
	case bad && ses.excused.Load():
	case bad && ses.retried.Load():
		ses.s.failed.Add(1)
	case bad:
		ses.fail("the session failed, but the test did not end it and no retries were used up: client %v, server %v", ses.ends[0].Err(), ses.ends[1].Err())
	}
	for _, w := range workers {
		w.check(bad)
	}
	if err := ses.region.Close(); err != nil {
		ses.fail("closing the region: %v", err)
	}
}
