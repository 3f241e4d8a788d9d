package soft

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// inFlight lets b send, and stops while a packet that points into b's memory waits in a's inbox:
// a runs before b in a step.
func inFlight(w *world) { w.fab.Step() }

// TestFlushTakesBackReferences: once a request has completed as flushed, its buffer is no longer
// read, though its packets still wait.
func TestFlushTakesBackReferences(t *testing.T) {
	w := newWorld(t, options{jumbo: true})
	mem.Poison(w.a.data())
	fill(w.b.data(), 3)
	wr := w.b.send(1, verbs.WRRDMAWrite, 0, w.b.sge(0, 5000))
	wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
	w.b.mustPost(wr)
	inFlight(w)
	must.Do(t, w.b.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState))
	fill(w.b.data(), 99) // its owner has it back
	w.settle()
	if got := statuses(w.b.poll(w.b.scq)); got != "1:WR_FLUSH_ERR " {
		t.Fatalf("completions %q", got)
	}
	if at := mem.Poisoned(w.a.data()); at >= 0 {
		t.Fatalf("the buffer was read after its completion: byte %d came over", at)
	}
}

// TestDestroyTakesBackReferences: the same for a destroyed queue pair.
func TestDestroyTakesBackReferences(t *testing.T) {
	w := newWorld(t, options{jumbo: true})
	mem.Poison(w.a.data())
	wr := w.b.send(1, verbs.WRRDMAWrite, 0, w.b.sge(0, 5000))
	wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
	w.b.mustPost(wr)
	inFlight(w)
	must.Do(t, w.b.qp.Close())
	fill(w.b.data(), 99)
	w.settle()
	if at := mem.Poisoned(w.a.data()); at >= 0 {
		t.Fatalf("the buffer was read after the queue pair was destroyed: byte %d came over", at)
	}
}

// TestDeregisterTakesBackReferences: a region closed under a request in flight can be unmapped.
// The request ends in a protection error, and requests of other regions on the same queue pair
// are not lost.
func TestDeregisterTakesBackReferences(t *testing.T) {
	w := newWorld(t, options{jumbo: true, attr: func(a *verbs.QPAttr) { a.Timeout = 0 }})
	arena := must.Get(mem.Map(1<<16, mem.Options{}))(t)
	m := must.Get(w.b.pd.RegMR(arena.Addr(), 1<<16, arena.Addr(), allAccess))(t)
	if err := arena.Unmap(); err == nil {
		t.Fatalf("a registered arena could be unmapped")
	}
	fill(w.b.data()[:5000], 1)
	first := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 5000))
	first.SetRDMA(w.a.at(0), w.a.mr.RKey())
	second := w.b.send(2, verbs.WRRDMAWrite, 0, verbs.SGE{Addr: arena.Addr(), Length: 5000, LKey: m.LKey()})
	second.SetRDMA(w.a.at(5000), w.a.mr.RKey())
	w.b.mustPost(first, second)
	inFlight(w)
	must.Do(t, m.Close())
	must.Do(t, arena.Unmap())
	w.settle()
	if got := statuses(w.b.poll(w.b.scq)); got != "1:SUCCESS 2:LOC_PROT_ERR " {
		t.Fatalf("completions %q", got)
	}
}

// TestDeregisterEndsReads: READ responses in flight from a closed region do not arrive; the
// repeated request is refused.
func TestDeregisterEndsReads(t *testing.T) {
	w := newWorld(t, options{jumbo: true})
	mem.Poison(w.a.data())
	arena := must.Get(mem.Map(1<<16, mem.Options{}))(t)
	m := must.Get(w.b.pd.RegMR(arena.Addr(), 1<<16, arena.Addr(), allAccess))(t)
	wr := w.a.send(1, verbs.WRRDMARead, 0, w.a.sge(0, 5000))
	wr.SetRDMA(arena.Addr(), m.RKey())
	w.a.mustPost(wr)
	inFlight(w)
	must.Do(t, m.Close())
	must.Do(t, arena.Unmap())
	w.settle()
	if got := statuses(w.a.poll(w.a.scq)); got != "1:REM_ACCESS_ERR " {
		t.Fatalf("completions %q", got)
	}
	if at := mem.Poisoned(w.a.data()); at >= 0 {
		t.Fatalf("bytes of a closed region arrived, at %d", at)
	}
}

// TestGuardKeepsReadersOut: after kill has returned no reader is inside, and none can enter.
func TestGuardKeepsReadersOut(t *testing.T) {
	const rounds, readers = 2000, 3
	for range rounds {
		var g guard
		var inside atomic.Int32
		var over atomic.Bool
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for g.Enter() {
					inside.Add(1)
					if over.Load() {
						t.Error("inside after kill had returned")
					}
					inside.Add(-1)
					g.Leave()
				}
			})
		}
		g.kill()
		over.Store(true)
		if n := inside.Load(); n != 0 {
			t.Fatalf("%d readers inside when kill returned", n)
		}
		wg.Wait()
	}
}

// TestKeyTableAgainstAMap: put, get and remove behave as those of a map.
func TestKeyTableAgainstAMap(t *testing.T) {
	var table keyTable
	model := map[uint32]*memoryRegion{}
	seed := uint32(1)
	next := func() uint32 { // few low bits, so that runs collide
		seed = seed*1664525 + 1013904223
		return seed&0xff003f00 | 1<<keyTagBits | 7
	}
	for i := range 4000 { // colliding keys have quadratic cost
		k := next()
		if i%3 == 0 {
			table.remove(keyIndex(k))
			delete(model, k)
		} else if model[k] == nil {
			m := &memoryRegion{key: k}
			table.put(keySlot{key: k, mr: m})
			model[k] = m
		}
		if table.n != len(model) {
			t.Fatalf("step %d: %d keys, want %d", i, table.n, len(model))
		}
	}
	for k, m := range model {
		if table.get(k) != m {
			t.Fatalf("key %x lost", k)
		}
	}
	for range 1000 {
		if k := next(); table.get(k) != model[k] {
			t.Fatalf("key %x found, was removed", k)
		}
	}
}
