package soft

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

const persistent = allAccess | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent | verbs.AccessMWBind

// pool is a mapped file that is registered in b's domain.
type pool struct {
	w     *world
	path  string
	arena *mem.Arena
	mr    verbs.MR
}

// persistentAttr makes the queue pairs permit the same as the regions. No timer ends a request:
// the tests hold a FLUSH for any time, and disks are slow. The tests repeat requests themselves.
func persistentAttr(a *verbs.QPAttr) { a.AccessFlags, a.Timeout = persistent, 0 }

// newPool makes a pool of 64 KiB, closed with the test.
func newPool(t *testing.T, real bool) *pool { return newPoolOf(t, real, persistentAttr) }

// newPoolOf is newPool with other attributes of the queue pairs.
func newPoolOf(t *testing.T, real bool, attr func(*verbs.QPAttr)) *pool {
	if !mem.FileSupported {
		if caps := memoryCaps(); caps&verbs.CapFlushPersistent != 0 {
			t.Errorf("no file can be mapped, and the device says %v", caps)
		}
		t.Skip("this build cannot map files; that the device says so was checked")
	}
	w := newWorld(t, options{real: real, access: allAccess, attr: attr})
	p := &pool{w: w, path: filepath.Join(t.TempDir(), "pool")}
	var err error
	p.arena, err = mem.MapFile(p.path, 1<<16)
	must.Do(t, err)
	p.mr = must.Get(w.b.pd.RegMR(p.arena.Addr(), 1<<16, p.arena.Addr(), persistent))(t)
	t.Cleanup(func() {
		must.Do(t, p.mr.Close())
		must.Do(t, p.arena.Unmap())
	})
	return p
}

// ranges records the synced ranges, before the sync.
type ranges struct {
	mu   sync.Mutex
	seen [][2]uint64 // offset and length
	gate chan error  // nil: do not wait; closed with the test
	done atomic.Int32
}

func (r *ranges) install(p *pool) {
	if r.gate != nil {
		p.w.t.Cleanup(func() { close(r.gate) }) // or closing the region would wait forever
	}
	p.w.b.ctx.dev.exclusive(func() {
		d := p.w.b.ctx.dev
		d.disk.sync = func(a *mem.Arena, addr uint64, n int) error {
			r.mu.Lock()
			r.seen = append(r.seen, [2]uint64{addr - a.Addr(), uint64(n)})
			r.mu.Unlock()
			if r.gate != nil {
				if err := <-r.gate; err != nil {
					return err
				}
			}
			defer r.done.Add(1)
			return a.Sync(addr, n)
		}
	})
}

// TestPersistentFlushReachesTheFile: after WRITE and FLUSH the bytes are in the file, also when
// it is mapped again; exactly the requested pages are written: of a range, of a region, through a
// window.
func TestPersistentFlushReachesTheFile(t *testing.T) {
	for _, real := range []bool{false, true} {
		p := newPool(t, real)
		w := p.w
		r := &ranges{}
		r.install(p)
		fill(w.a.data()[:9000], 3)
		at := p.arena.Addr() + 5000
		wr := w.a.writeWR(1, 9000, at, p.mr.RKey())
		w.a.mustPostExtended(wr,
			w.a.flushWR(2, at, p.mr.RKey(), 9000, verbs.FlushPersistent, verbs.FlushRange),
			w.a.flushWR(3, 0, p.mr.RKey(), 0, verbs.FlushPersistent|verbs.FlushGlobal, verbs.FlushMR),
			w.a.flushWR(4, at, p.mr.RKey(), 0, verbs.FlushPersistent, verbs.FlushRange),
			w.a.flushWR(5, at, p.mr.RKey(), 10, verbs.FlushGlobal, verbs.FlushRange))
		wcs := w.a.want(w.a.scq, 5)
		w.a.ok(wcs, 1)
		if wcs[1].Opcode != verbs.WCFlush {
			t.Fatalf("a FLUSH completed as %v", wcs[1].Opcode)
		}
		want := [][2]uint64{{5000, 9000}, {0, 1 << 16}}
		if len(r.seen) != 2 || r.seen[0] != want[0] || r.seen[1] != want[1] {
			t.Fatalf("real %v: written %v, want %v", real, r.seen, want)
		}
		got := must.Get(os.ReadFile(p.path))(t)
		if !bytes.Equal(got[5000:14000], w.a.data()[:9000]) {
			t.Fatal("the file does not hold what was written and flushed")
		}
		again := must.Get(mem.MapFile(p.path, 1<<16))(t)
		if !bytes.Equal(again.Bytes()[5000:14000], w.a.data()[:9000]) {
			t.Fatal("mapped again, the file shows other bytes")
		}
		must.Do(t, again.Unmap())
	}
}

// TestQuickPersistenceNeedsNoGoroutine: the engine itself makes a few lines of persistent memory
// persistent, and leaves many, and pages of a disk, to a goroutine.
func TestQuickPersistenceNeedsNoGoroutine(t *testing.T) {
	for _, quick := range []bool{true, false} {
		p := newPool(t, true)
		w := p.w
		var asked, waits atomic.Int32
		d := w.b.ctx.dev
		d.exclusive(func() {
			d.disk.syncIsQuick = func(a *mem.Arena, n int) bool {
				if a == p.arena {
					asked.Store(int32(n))
				}
				return quick
			}
			d.disk.sync = func(a *mem.Arena, addr uint64, n int) error {
				if w.b.qp.resp.disk != nil { // the responder waits for this call
					waits.Add(1)
				}
				return a.Sync(addr, n)
			}
		})
		w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr()+8, p.mr.RKey(), 100, verbs.FlushPersistent, verbs.FlushRange))
		w.a.ok(w.a.want(w.a.scq, 1), 1)
		if asked.Load() != 100 || (waits.Load() == 0) != quick {
			t.Errorf("quick %v: asked about %d bytes, and the responder waited %d times", quick, asked.Load(), waits.Load())
		}
	}
}

// TestPersistentFlushThroughAWindow: it writes the window's part of the file, also as a FLUSH of all that the key
// opens.
func TestPersistentFlushThroughAWindow(t *testing.T) {
	p := newPool(t, false)
	w := p.w
	r := &ranges{}
	r.install(p)
	mw := w.b.newMW(verbs.MWType2)
	bind := w.b.send(1, verbs.WRBindMW, verbs.SendSignaled)
	bind.SetBind(mw.Handle(), verbs.IncRKey(mw.RKey()), p.mr.Handle(), p.arena.Addr()+4096, 100, verbs.AccessFlushPersistent|verbs.AccessZeroBased)
	w.b.mustPost(bind)
	w.b.ok(w.b.want(w.b.scq, 1), 1)
	w.a.mustPostExtended(w.a.flushWR(2, 10, mw.RKey(), 20, verbs.FlushPersistent, verbs.FlushRange))
	w.a.ok(w.a.want(w.a.scq, 1), 2)
	w.a.mustPostExtended(w.a.flushWR(3, 0, mw.RKey(), 0, verbs.FlushPersistent, verbs.FlushMR))
	w.a.ok(w.a.want(w.a.scq, 1), 3)
	if want := [][2]uint64{{4106, 20}, {4096, 100}}; !slices.Equal(r.seen, want) {
		t.Fatalf("written (offset and length) %v, want %v", r.seen, want)
	}
	must.Do(t, mw.Close())
}

// TestPersistenceNeedsAFile: memory that cannot be made persistent cannot be registered for it.
func TestPersistenceNeedsAFile(t *testing.T) {
	w := newWorld(t, options{})
	_, err := w.b.pd.RegMR(w.b.at(0), 4096, w.b.at(0), persistent)
	if !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("plain memory registered with FLUSH_PERSISTENT: %v", err)
	}
}

// TestWorkBehindAPersistentFlushWaits: until the pages are written, the FLUSH is not answered and
// no later request is executed: an ATOMIC_WRITE that publishes the flushed data never overtakes
// it. Other queue pairs continue.
func TestWorkBehindAPersistentFlushWaits(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	at := p.arena.Addr()
	w.b.recv(9, w.b.sge(0, 100))
	w.a.mustPostExtended(
		w.a.writeWR(1, 100, at, p.mr.RKey()),
		w.a.flushWR(2, at, p.mr.RKey(), 100, verbs.FlushPersistent, verbs.FlushRange),
		w.a.atomicWR(3, at+4096, p.mr.RKey(), 42),
		w.a.flushWR(4, at+4096, p.mr.RKey(), 8, verbs.FlushPersistent, verbs.FlushRange),
		w.a.send(5, verbs.WRSend, verbs.SendSignaled, w.a.sge(0, 100)))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	p.awaitParked(3)
	word := func() uint64 { return *mustWord(t, p.arena, at+4096) }
	if word() != 0 || len(w.b.poll(w.b.rcq)) != 0 {
		t.Fatal("a request behind a FLUSH was executed before the pages were written")
	}
	// The engine continues with other work in the meantime.
	w.b.mustPost(w.b.send(77, verbs.WRRDMARead, verbs.SendSignaled))
	w.b.ok(w.b.want(w.b.scq, 1), 77)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 2), 2)
	if word() != 42 {
		t.Fatal("the ATOMIC_WRITE behind the FLUSH was not executed")
	}
	p.awaitParked(1)
	if len(w.b.poll(w.b.rcq)) != 0 {
		t.Fatal("a SEND got ahead of the second FLUSH")
	}
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 2), 4)
	w.b.ok(w.b.want(w.b.rcq, 1), 9)
}

// awaitParked waits until exactly n requests are parked behind a FLUSH that is being written.
func (p *pool) awaitParked(n int) {
	p.w.t.Helper()
	q := p.w.b.qp
	got, writing := 0, false
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		p.w.b.ctx.dev.exclusive(func() {
			got, writing = 0, false
			if j := q.resp.disk; j != nil && j.kind == writeBack {
				got, writing = len(j.parked), true
			}
		})
		if got == n && writing {
			return
		}
	}
	p.w.t.Fatalf("%d requests parked, a FLUSH being written: %v; want %d", got, writing, n)
}

func mustWord(t *testing.T, a *mem.Arena, addr uint64) *uint64 {
	t.Helper()
	p, ok := a.Word(addr)
	if !ok {
		t.Fatalf("no word at %#x", addr)
	}
	return p
}

// TestFailedSyncFailsTheFlush: a failed disk write is a remote operational error, never a
// success, in virtual and in real time.
func TestFailedSyncFailsTheFlush(t *testing.T) {
	for _, real := range []bool{false, true} {
		p := newPool(t, real)
		w := p.w
		r := &ranges{gate: make(chan error, 1)}
		r.gate <- os.ErrDeadlineExceeded
		r.install(p)
		w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0),
			w.a.atomicWR(2, p.arena.Addr(), p.mr.RKey(), 42))
		if got := statuses(w.a.want(w.a.scq, 2)); got != "1:REM_OP_ERR 2:WR_FLUSH_ERR " {
			t.Fatalf("real %v: completions %q", real, got)
		}
		if *mustWord(t, p.arena, p.arena.Addr()) != 0 {
			t.Fatal("what was to publish the flushed bytes was executed")
		}
	}
}

// TestClosingUnderAPersistentFlush: the queue pair is destroyed and the region closed while the
// pages are being written. Parked packets are released, Close of the region waits for the disk,
// and then the file can be unmapped.
func TestClosingUnderAPersistentFlush(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0),
		w.a.writeWR(2, 100, p.arena.Addr(), p.mr.RKey()))
	p.awaitParked(1)
	must.Do(t, w.b.qp.Close())
	if d := w.b.ctx.dev; d.parked != 0 || w.b.qp.resp.disk != nil {
		t.Fatalf("a destroyed queue pair keeps %d packets", d.parked)
	}
	closed := make(chan error)
	go func() { closed <- p.mr.Close() }()
	r.gate <- nil
	must.Do(t, <-closed)
	if r.done.Load() != 1 {
		t.Fatal("the region was closed while its pages were being written")
	}
	must.Do(t, p.arena.Unmap())
}

// TestStaleSyncConcludesNothing: the queue pair of a FLUSH is reset and reconnected while its
// pages are written. The result answers neither the FLUSH of the new connection nor any other
// request.
func TestStaleSyncConcludesNothing(t *testing.T) {
	for _, again := range []bool{true, false} {
		p := newPool(t, true)
		w := p.w
		q := w.b.qp
		first := must.Get(w.b.pd.RegMR(p.arena.Addr(), 4096, p.arena.Addr(), persistent))(t)
		gates := map[int]chan error{4: make(chan error), 8: make(chan error)} // by length
		t.Cleanup(func() { close(gates[4]); close(gates[8]) })                // unblocks the writers
		w.b.ctx.dev.exclusive(func() {
			w.b.ctx.dev.disk.sync = func(_ *mem.Arena, _ uint64, n int) error { return <-gates[n] }
		})
		w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), first.RKey(), 4, verbs.FlushPersistent, 0))
		p.awaitParked(0)
		for _, e := range []*peer{w.a, w.b} {
			must.Do(t, e.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
		}
		w.connect(options{real: true, mtu: verbs.MTU1024, attr: persistentAttr})
		if again {
			w.a.mustPostExtended(w.a.flushWR(2, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
			p.awaitParked(0)
		}
		var before, after responder
		state := func(r *responder) func() { return func() { *r = q.resp } }
		q.dev.exclusive(state(&before))
		gates[4] <- nil
		must.Do(t, first.Close()) // the result was handed over
		q.dev.exclusive(func() {})
		q.dev.exclusive(state(&after)) // the engine has taken it
		if after.expected != before.expected || after.disk != before.disk || (after.disk != nil) != again {
			t.Fatalf("the stale result moved the responder from %d to %d, FLUSH being written: %v", before.expected, after.expected, after.disk != nil)
		}
		if got := w.a.poll(w.a.scq); len(got) != 0 {
			t.Fatalf("the stale result completed %+v", got)
		}
		if again {
			gates[8] <- nil
			w.a.ok(w.a.want(w.a.scq, 1), 2)
		}
	}
}

// TestParkedPacketsAreBounded: a peer that floods a queue pair whose FLUSH is being written
// occupies at most maxParked packets.
func TestParkedPacketsAreBounded(t *testing.T) {
	p := newPool(t, true)
	w := p.w
	r := &ranges{gate: make(chan error)}
	r.install(p)
	w.a.mustPostExtended(w.a.flushWR(1, p.arena.Addr(), p.mr.RKey(), 8, verbs.FlushPersistent, 0))
	p.sendBehind(maxParked+100, nil)
	p.awaitParked(maxParked)
	r.gate <- nil
	w.a.ok(w.a.want(w.a.scq, 1), 1)
}

// Rule: the packets parked behind FLUSHes are bounded for the device, too; packets beyond are
// dropped and counted.
func TestParkedPacketsOfADeviceAreBounded(t *testing.T) {
	w := newWorld(t, options{})
	d, q := w.b.ctx.dev, w.b.qp
	d.exclusive(func() {
		j := &diskJob{q: q}
		k := d.p.Get()
		k.AddCopy(make([]byte, 3*parkedUnit))
		q.parkRequest(j, k, q.resp.expected+1)
		if d.parked != 4 {
			t.Errorf("a packet with %d copied bytes counts as %d, want 4", 3*parkedUnit, d.parked)
		}
		q.dropParked(j)
		d.parked = maxParkedAll - 1
		for i := range 2 {
			k := d.p.Get()
			if kept := q.parkRequest(j, k, q.resp.expected+1+uint64(i)); kept != (i == 0) {
				t.Errorf("packet %d of %d was kept: %v", d.parked, maxParkedAll, kept)
			}
			if i > 0 {
				k.Release()
			}
		}
		d.parked -= maxParkedAll - 1
		q.dropParked(j)
		if d.parked != 0 || d.counters.Unparked != 1 {
			t.Errorf("%d packets are parked, %d were counted as dropped", d.parked, d.counters.Unparked)
		}
	})
}
