package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"pgregory.net/rapid"
)

// modelWindow is the expected state of a window.
type modelWindow struct {
	mw     *memoryWindow
	key    uint32
	old    uint32 // a former key
	bound  bool
	off, n int // in the region
	access verbs.AccessFlags
}

// windowModel drives windows of b and accesses of a, one request at a time, and predicts each
// status. After an error it resets and reconnects the queue pairs; bindings survive that.
type windowModel struct {
	w       *world
	o       options
	windows []*modelWindow
	taken   map[uint32]bool // keys that b has taken back through its queue pair
}

const modelRegion = 4096 // windows and accesses stay near these bytes

// outcome checks the completion of the single posted request, and reconnects after an error.
func (m *windowModel) outcome(t *rapid.T, e *peer, want verbs.WCStatus, what string) {
	m.w.settle()
	wcs := e.poll(e.scq)
	if len(wcs) != 1 || wcs[0].Status != want {
		t.Fatalf("%s: completed %q, the model says %v", what, statuses(wcs), want)
	}
	if m.w.a.state() == verbs.QPSRTS && m.w.b.state() == verbs.QPSRTS {
		return
	}
	for _, p := range []*peer{m.w.a, m.w.b} {
		must.Do(t, p.qp.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPMState))
		p.events()
	}
	m.w.connect(m.o)
	m.w.settle()
	m.w.a.poll(m.w.a.scq)
	m.w.b.poll(m.w.b.rcq)
	clear(m.taken)
}

func (m *windowModel) pick(t *rapid.T) *modelWindow {
	return m.windows[rapid.IntRange(0, len(m.windows)-1).Draw(t, "window")]
}

// anyKey returns a key of the window: mostly the current one, otherwise a former one.
func (x *modelWindow) anyKey(t *rapid.T) uint32 {
	if rapid.IntRange(0, 3).Draw(t, "old key") == 0 {
		return x.old
	}
	return x.key
}

func (m *windowModel) bind(t *rapid.T) {
	x := m.pick(t)
	off := rapid.IntRange(0, modelRegion).Draw(t, "off")
	n := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, modelRegion-off)).Draw(t, "n")
	access := verbs.AccessFlags(0)
	for _, bit := range []verbs.AccessFlags{verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic, verbs.AccessFlushGlobal, verbs.AccessZeroBased} {
		if rapid.Bool().Draw(t, bit.String()) {
			access |= bit
		}
	}
	key := x.key&^0xff | rapid.Uint32Range(0, 255).Draw(t, "tag")
	want := verbs.WCSuccess
	if (x.mw.kind == 1 && access&verbs.AccessZeroBased != 0) || (x.mw.kind == 2 && (x.bound || n == 0)) {
		want = verbs.WCMWBindErr
	}
	wr := m.w.b.bindWR(1, x.mw, off, uint64(n), access)
	wr.MWRKey = key
	m.w.b.mustPost(wr)
	m.outcome(t, m.w.b, want, "bind")
	if want == verbs.WCSuccess {
		if key != x.key {
			x.old = x.key
		}
		x.key, x.bound, x.off, x.n, x.access = key, n > 0, off, n, access
		if x.old == x.key { // the tag repeats
			x.old = x.key ^ 1
		}
	}
}

func (m *windowModel) invalidate(t *rapid.T) {
	x := m.pick(t)
	key := x.anyKey(t)
	ends := x.mw.kind == 2 && x.bound && key == x.key
	if rapid.Bool().Draw(t, "by the peer") {
		m.w.b.recv(5)
		wr := m.w.a.send(1, verbs.WRSendWithInv, verbs.SendSignaled)
		wr.SetInvalidate(key)
		m.w.a.mustPost(wr)
		m.w.settle()
		got := m.w.b.poll(m.w.b.rcq)
		if ok := ends || m.taken[key]; len(got) != 1 || (got[0].Status == verbs.WCSuccess) != ok {
			t.Fatalf("SEND_WITH_INV: received %q, allowed: %v", statuses(got), ok)
		}
		m.outcome(t, m.w.a, verbs.WCSuccess, "SEND_WITH_INV")
	} else {
		want := verbs.WCSuccess
		if x.mw.kind != 2 || key != x.key {
			want = verbs.WCLocQPOpErr
		}
		m.w.b.mustPost(m.w.b.invWR(1, key))
		m.outcome(t, m.w.b, want, "LOCAL_INV")
		if ends {
			m.taken[key] = true
		}
	}
	if ends {
		x.bound = false
	}
}

func (m *windowModel) access(t *rapid.T) {
	x := m.pick(t)
	key := x.anyKey(t)
	op := rapid.SampledFrom([]verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite, verbs.WRFlush}).Draw(t, "op")
	n := 8
	at := 8 * rapid.IntRange(-1, modelRegion/8).Draw(t, "at") // in the region
	if op != verbs.WRAtomicFetchAndAdd && op != verbs.WRAtomicWrite {
		n = rapid.IntRange(1, 600).Draw(t, "n")
		at += rapid.IntRange(0, 7).Draw(t, "odd")
	}
	need := map[verbs.WROpcode]verbs.AccessFlags{
		verbs.WRRDMAWrite: verbs.AccessRemoteWrite, verbs.WRRDMARead: verbs.AccessRemoteRead, verbs.WRAtomicFetchAndAdd: verbs.AccessRemoteAtomic,
		verbs.WRAtomicWrite: verbs.AccessRemoteWrite, verbs.WRFlush: verbs.AccessFlushGlobal,
	}[op]
	want := verbs.WCSuccess
	if !x.bound || key != x.key || x.access&need == 0 || at < x.off || at+n > x.off+x.n {
		want = verbs.WCRemAccessErr
	}
	to := m.w.b.at(0) + uint64(at)
	if x.bound && x.access&verbs.AccessZeroBased != 0 {
		to = uint64(at - x.off)
	}
	if op == verbs.WRAtomicFetchAndAdd && to%8 != 0 {
		return // posting refuses it: in a zero-based window the word may be aligned and its address not
	}
	var sges []verbs.SGE
	if !op.ExtendedOnly() {
		sges = append(sges, m.w.a.sge(0, n))
	}
	wr := m.w.a.send(1, op, verbs.SendSignaled, sges...)
	switch op {
	case verbs.WRAtomicFetchAndAdd:
		wr.SetFetchAdd(to, key, 1)
	case verbs.WRAtomicWrite:
		wr.SetAtomicWrite(to, key, 1)
	case verbs.WRFlush:
		wr.SetFlush(to, key, uint64(n), verbs.FlushGlobal, verbs.FlushRange)
	default:
		wr.SetRDMA(to, key)
	}
	m.w.a.mustPostExtended(wr)
	m.outcome(t, m.w.a, want, op.String())
}

// check compares the counters with the bindings.
func (m *windowModel) check(t *rapid.T) {
	bound, tied := 0, 0
	for _, x := range m.windows {
		if x.mw.RKey() != x.key || (x.mw.mr != nil) != x.bound {
			t.Fatalf("a window of type %d has key %#x and is bound: %v; the model says %#x, %v", x.mw.kind, x.mw.RKey(), x.mw.mr != nil, x.key, x.bound)
		}
		if x.bound {
			bound++
			if x.mw.kind == 2 {
				tied++
			}
		}
	}
	if n := m.w.b.mr.(*memoryRegion).windows; n != bound || len(m.w.b.qp.bound) != tied {
		t.Fatalf("%d windows counted at the region and %d at the queue pair, %d and %d are bound", n, len(m.w.b.qp.bound), bound, tied)
	}
}

// renew closes a window, bound or not, and makes another.
func (m *windowModel) renew(t *rapid.T) {
	x := m.pick(t)
	must.Do(t, x.mw.Close())
	if x.mw.kind == 2 && x.bound {
		m.taken[x.key] = true
	}
	*x = modelWindow{mw: m.w.b.newMW(x.mw.kind), old: x.key}
	x.key = x.mw.RKey()
}

// TestWindowsAgainstAModel: binding, invalidating, closing and access in random order complete
// with the status that the model predicts.
func TestWindowsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options{access: flushGlobal | verbs.AccessMWBind, mtu: verbs.MTU256, memory: 1 << 16, seed: rapid.Uint64().Draw(t, "seed")}
		m := &windowModel{o: o, w: newWorld(t, o), taken: map[uint32]bool{}}
		for _, kind := range []verbs.MWType{1, 1, 2, 2} {
			x := &modelWindow{mw: m.w.b.newMW(kind)}
			x.key = x.mw.RKey()
			x.old = x.key ^ 1
			m.windows = append(m.windows, x)
		}
		t.Cleanup(func() {
			for _, x := range m.windows {
				must.Do(t, x.mw.Close())
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "bind": m.bind, "invalidate": m.invalidate, "access": m.access, "renew": m.renew,
		})
	})
}
