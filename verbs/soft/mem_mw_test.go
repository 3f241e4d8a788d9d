package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// windowAccess is the access that the regions of these tests permit.
const windowAccess = allAccess | verbs.AccessMWBind

const remoteAll = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// newMW makes a window in e's domain; the caller closes it.
func (e *peer) newMW(t verbs.MWType) *memoryWindow {
	e.w.t.Helper()
	mw := must.Get(e.pd.AllocMW(t))(e.w.t)
	return mw.(*memoryWindow)
}

// bindWR binds n bytes at off of e's region; the new key is the next one.
func (e *peer) bindWR(id uint64, mw verbs.MW, off int, n uint64, access verbs.AccessFlags) request {
	wr := e.send(id, verbs.WRBindMW, verbs.SendSignaled)
	wr.SetBind(mw.Handle(), verbs.IncRKey(mw.RKey()), e.mr.Handle(), e.at(off), n, access)
	return wr
}

// invWR invalidates a local key.
func (e *peer) invWR(id uint64, key uint32) request {
	wr := e.send(id, verbs.WRLocalInv, verbs.SendSignaled)
	wr.SetInvalidate(key)
	return wr
}

// writeWR writes n bytes from the start of e's memory to an address of the peer.
func (e *peer) writeWR(id uint64, n int, to uint64, key uint32) request {
	wr := e.send(id, verbs.WRRDMAWrite, verbs.SendSignaled, e.sge(0, n))
	wr.SetRDMA(to, key)
	return wr
}

// bound binds mw and checks that the binding succeeds.
func (e *peer) bound(mw verbs.MW, off int, n uint64, access verbs.AccessFlags) {
	e.w.t.Helper()
	e.mustPost(e.bindWR(77, mw, off, n, access))
	e.ok(e.want(e.scq, 1), 77)
}

// windowWorld is a world whose regions permit windows. The test closes its windows before the
// rest.
func windowWorld(t *testing.T, o options) *world {
	if o.access == 0 {
		o.access = windowAccess
	}
	return newWorld(t, o)
}

func closing(t tb, objs ...verbs.Object) {
	t.Cleanup(func() {
		for _, o := range objs {
			must.Do(t, o.Close())
		}
	})
}

// TestBindRules: the valid and invalid parameters of a BIND_MW, for both types, in the order of
// bind's checks (rxe_mw.c, rxe_check_bind_mw).
func TestBindRules(t *testing.T) {
	type world2 struct {
		*world
		mw     *memoryWindow
		other  verbs.MR // in another domain
		far    verbs.MW // in another domain
		plain  verbs.MR // without MW_BIND
		ro     verbs.MR // MW_BIND without LOCAL_WRITE
		zero   verbs.MR // zero-based
		bigger uint64
	}
	for _, c := range []struct {
		name string
		kind verbs.MWType
		set  func(w *world2, wr request)
		ok   bool
	}{
		{"type 1", 1, func(*world2, request) {}, true},
		{"type 2", 2, func(*world2, request) {}, true},
		{"same tag", 2, func(w *world2, wr request) { wr.MWRKey = w.mw.RKey() }, true},
		{"whole region", 2, func(w *world2, wr request) { wr.BindAddr, wr.BindLength = w.b.mr.Addr(), w.b.mr.Length() }, true},
		{"no access at all", 2, func(w *world2, wr request) { wr.BindAccess = 0 }, true},
		{"type 2 zero-based", 2, func(w *world2, wr request) { wr.BindAccess |= verbs.AccessZeroBased }, true},
		{"type 1 of length 0", 1, func(w *world2, wr request) { wr.BindLength, wr.BindMR = 0, 0 }, true},
		{"read of a region without LOCAL_WRITE", 1, func(w *world2, wr request) {
			wr.BindMR, wr.BindAccess = w.ro.Handle(), verbs.AccessRemoteRead
		}, true},

		{"type 1 zero-based", 1, func(w *world2, wr request) { wr.BindAccess |= verbs.AccessZeroBased }, false},
		{"type 2 of length 0", 2, func(w *world2, wr request) { wr.BindLength, wr.BindMR = 0, 0 }, false},
		{"no such window", 2, func(w *world2, wr request) { wr.MW ^= 1 }, false},
		{"a region's handle for the window", 2, func(w *world2, wr request) { wr.MW = uint64(keyIndex(w.b.mr.RKey())) }, false},
		{"a window handle of 64 bits", 2, func(w *world2, wr request) { wr.MW |= 1 << 32 }, false},
		{"a region handle of 64 bits", 2, func(w *world2, wr request) { wr.BindMR |= 1 << 32 }, false},
		{"no such region", 2, func(w *world2, wr request) { wr.BindMR ^= 0x100 }, false},
		{"the region's key with another tag", 2, func(w *world2, wr request) { wr.BindMR ^= 1 }, false},
		{"a window for the region", 2, func(w *world2, wr request) { wr.BindMR = uint64(w.mw.RKey()) }, false},
		{"other index in the key", 2, func(w *world2, wr request) { wr.MWRKey ^= 0x100 }, false},
		{"window of another domain", 2, func(w *world2, wr request) {
			wr.MW, wr.MWRKey = w.far.Handle(), w.far.RKey()
		}, false},
		{"region of another domain", 2, func(w *world2, wr request) { wr.BindMR = w.other.Handle() }, false},
		{"region of another domain, type 1", 1, func(w *world2, wr request) { wr.BindMR = w.other.Handle() }, false},
		{"region without MW_BIND", 2, func(w *world2, wr request) { wr.BindMR = w.plain.Handle() }, false},
		{"zero-based region", 2, func(w *world2, wr request) { wr.BindMR, wr.BindAddr = w.zero.Handle(), 0 }, false},
		{"write of a region without LOCAL_WRITE", 2, func(w *world2, wr request) {
			wr.BindMR, wr.BindAccess = w.ro.Handle(), verbs.AccessRemoteWrite
		}, false},
		{"atomics of a region without LOCAL_WRITE", 2, func(w *world2, wr request) {
			wr.BindMR, wr.BindAccess = w.ro.Handle(), verbs.AccessRemoteAtomic
		}, false},
		{"one byte below", 2, func(w *world2, wr request) { wr.BindAddr = w.b.mr.Addr() - 1 }, false},
		{"one byte beyond", 2, func(w *world2, wr request) { wr.BindLength = w.bigger }, false},
		{"wraps around", 2, func(w *world2, wr request) { wr.BindLength = ^uint64(0) }, false},
		{"zero-based and beyond", 2, func(w *world2, wr request) {
			wr.BindLength, wr.BindAccess = w.bigger, verbs.AccessZeroBased
		}, false},
		{"unknown access", 2, func(w *world2, wr request) { wr.BindAccess |= 1 << 15 }, false},
		{"on-demand access", 2, func(w *world2, wr request) { wr.BindAccess |= verbs.AccessOnDemand }, false},
		{"persistent flush of plain memory", 2, func(w *world2, wr request) { wr.BindAccess = verbs.AccessFlushPersistent }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world2{world: windowWorld(t, options{})}
			b := w.b
			w.mw = b.newMW(c.kind)
			pd := must.Get(b.ctx.AllocPD())(t)
			reg := func(pd verbs.PD, iova uint64, a verbs.AccessFlags) verbs.MR {
				m := must.Get(pd.RegMR(b.at(0), uint64(b.arena.Len()), iova, a))(t)
				return m
			}
			w.other, w.plain = reg(pd, b.at(0), windowAccess), reg(b.pd, b.at(0), allAccess)
			w.ro, w.zero = reg(b.pd, b.at(0), verbs.AccessMWBind|verbs.AccessRemoteRead), reg(b.pd, 0, windowAccess|verbs.AccessZeroBased)
			w.far = must.Get(pd.AllocMW(c.kind))(t)
			closing(t, w.mw, w.far, w.other, w.plain, w.ro, w.zero, pd)
			w.bigger = b.mr.Length() - 4096 + 1
			before := w.mw.RKey()
			wr := b.bindWR(1, w.mw, 4096, 4096, remoteAll)
			c.set(w, wr)
			b.mustPost(wr)
			wcs := b.want(b.scq, 1)
			want := verbs.WCSuccess
			if !c.ok {
				want = verbs.WCMWBindErr
			}
			if wcs[0].Status != want || (c.ok && wcs[0].Opcode != verbs.WCBindMW) {
				t.Fatalf("completed %v %v, want %v", wcs[0].Opcode, wcs[0].Status, want)
			}
			if c.ok && w.mw.RKey() != wr.MWRKey {
				t.Fatalf("the window's key is %#x, bound with %#x", w.mw.RKey(), wr.MWRKey)
			}
			if !c.ok && (w.mw.RKey() != before || w.mw.mr != nil || b.state() != verbs.QPSErr) {
				t.Fatalf("a refused binding left key %#x (was %#x), bound %v, queue pair %v", w.mw.RKey(), before, w.mw.mr != nil, b.state())
			}
		})
	}
}

// TestRebinding: a type 1 window moves, and its old key becomes invalid; a type 2 window must be
// invalidated first.
func TestRebinding(t *testing.T) {
	w := windowWorld(t, options{})
	one := w.b.newMW(verbs.MWType1)
	closing(t, one)
	w.b.bound(one, 0, 100, remoteAll)
	old := one.RKey()
	w.b.bound(one, 4096, 100, remoteAll)
	w.a.mustPost(w.a.writeWR(1, 100, w.b.at(4096), one.RKey()))
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	w.b.bound(one, 0, 0, 0)
	if one.mr != nil || w.b.mr.(*memoryRegion).windows != 0 {
		t.Fatalf("binding nothing did not unbind a type 1 window")
	}
	w.b.bound(one, 0, 100, remoteAll)
	w.a.mustPost(w.a.writeWR(2, 100, w.b.at(0), old))
	if got := statuses(w.a.want(w.a.scq, 1)); got != "2:REM_ACCESS_ERR " {
		t.Fatalf("through the old key of a type 1 window: %q", got)
	}

	w = windowWorld(t, options{})
	two := w.b.newMW(verbs.MWType2)
	closing(t, two)
	w.b.bound(two, 0, 100, remoteAll)
	inv := w.b.invWR(1, two.RKey())
	again := w.b.bindWR(2, two, 0, 100, remoteAll)
	over := w.b.bindWR(3, two, 0, 100, remoteAll)
	w.b.mustPost(inv, again, over)
	if got := statuses(w.b.want(w.b.scq, 3)); got != "1:SUCCESS 2:SUCCESS 3:MW_BIND_ERR " {
		t.Fatalf("invalidate, bind, bind of a type 2 window: %q", got)
	}
}

// TestWindowAccess: a window opens its own range with its own permissions, to the peer of its
// queue pair.
func TestWindowAccess(t *testing.T) {
	const off, n = 4096, 256
	for _, c := range []struct {
		name   string
		access verbs.AccessFlags
		op     verbs.WROpcode
		at     int // relative to the window
		n      int
		want   verbs.WCStatus
	}{
		{"write all", verbs.AccessRemoteWrite, verbs.WRRDMAWrite, 0, n, verbs.WCSuccess},
		{"read all", verbs.AccessRemoteRead, verbs.WRRDMARead, 0, n, verbs.WCSuccess},
		{"atomic", verbs.AccessRemoteAtomic, verbs.WRAtomicFetchAndAdd, n - 8, 8, verbs.WCSuccess},
		{"atomic write", verbs.AccessRemoteWrite, verbs.WRAtomicWrite, n - 8, 8, verbs.WCSuccess},
		{"flush", verbs.AccessFlushGlobal, verbs.WRFlush, 0, n, verbs.WCSuccess},
		{"write without permission", verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, verbs.WRRDMAWrite, 0, 8, verbs.WCRemAccessErr},
		{"read without permission", verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic, verbs.WRRDMARead, 0, 8, verbs.WCRemAccessErr},
		{"atomic without permission", verbs.AccessRemoteRead | verbs.AccessRemoteWrite, verbs.WRAtomicFetchAndAdd, 0, 8, verbs.WCRemAccessErr},
		{"atomic write without permission", verbs.AccessRemoteAtomic, verbs.WRAtomicWrite, 0, 8, verbs.WCRemAccessErr},
		{"flush without permission", remoteAll, verbs.WRFlush, 0, 8, verbs.WCRemAccessErr},
		{"write below", remoteAll, verbs.WRRDMAWrite, -1, 8, verbs.WCRemAccessErr},
		{"write beyond", remoteAll, verbs.WRRDMAWrite, 0, n + 1, verbs.WCRemAccessErr},
		{"read beyond", remoteAll, verbs.WRRDMARead, 1, n, verbs.WCRemAccessErr},
		{"atomic beyond", remoteAll, verbs.WRAtomicFetchAndAdd, n, 8, verbs.WCRemAccessErr},
		{"flush beyond", verbs.AccessFlushGlobal, verbs.WRFlush, 1, n, verbs.WCRemAccessErr},
	} {
		for _, kind := range []verbs.MWType{1, 2} {
			for _, zero := range []verbs.AccessFlags{0, verbs.AccessZeroBased} {
				if zero != 0 && kind == 1 {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					w := windowWorld(t, options{access: windowAccess | verbs.AccessFlushGlobal})
					mw := w.b.newMW(kind)
					closing(t, mw)
					w.b.bound(mw, off, n, c.access|zero)
					base := w.b.at(off)
					if zero != 0 {
						base = 0
					}
					fill(w.a.data()[:n], 3)
					fill(w.b.data()[off:off+n], 9)
					sges := []verbs.SGE{w.a.sge(0, c.n)}
					if c.op.ExtendedOnly() {
						sges = nil
					}
					wr := w.a.send(1, c.op, verbs.SendSignaled, sges...)
					to := base + uint64(c.at)
					switch c.op {
					case verbs.WRAtomicFetchAndAdd:
						wr.SetFetchAdd(to, mw.RKey(), 1)
					case verbs.WRAtomicWrite:
						wr.SetAtomicWrite(to, mw.RKey(), 1)
					case verbs.WRFlush:
						wr.SetFlush(to, mw.RKey(), uint64(c.n), verbs.FlushGlobal, verbs.FlushRange)
					default:
						wr.SetRDMA(to, mw.RKey())
					}
					w.a.mustPostExtended(wr)
					got := w.a.want(w.a.scq, 1)[0]
					if got.Status != c.want {
						t.Fatalf("type %d, %v: %v, want %v", kind, zero, got.Status, c.want)
					}
					if c.want == verbs.WCSuccess && c.op == verbs.WRRDMAWrite && string(w.b.data()[off:off+n]) != string(w.a.data()[:n]) {
						t.Fatal("other bytes than those written stand in the window")
					}
					if c.want == verbs.WCSuccess && c.op == verbs.WRRDMARead && string(w.b.data()[off:off+n]) != string(w.a.data()[:n]) {
						t.Fatal("other bytes than the window's were read")
					}
					if c.op == verbs.WRAtomicWrite && c.want == verbs.WCSuccess && w.b.word(off+c.at) != 1 {
						t.Fatal("the word was not written at its place")
					}
				})
			}
		}
	}
}

// mustPostExtended posts requests through the extended interface.
func (e *peer) mustPostExtended(wrs ...request) {
	e.w.t.Helper()
	if n, errno := e.postExtended(wrs...); n != len(wrs) {
		e.w.t.Fatalf("%d of %d accepted: %v", n, len(wrs), errno)
	}
}

func (e *peer) postExtended(wrs ...request) (int, error) {
	for i := 1; i < len(wrs); i++ {
		wrs[i-1].Next = wrs[i].addr
	}
	t := verbs.IOBatch{Sends: []verbs.SendGroup{{QP: e.qp, Head: wrs[0].addr, Count: len(wrs), Extended: true}}}
	must.Do(e.w.t, e.ctx.Execute(&t))
	if g := t.Sends[0]; g.Errno != 0 {
		return g.Accepted, g.Errno
	}
	return t.Sends[0].Accepted, nil
}

// TestType2IsTiedToItsQueuePair: the key of a type 2 window gives no access through another queue
// pair of the same domain; that of a type 1 window does.
func TestType2IsTiedToItsQueuePair(t *testing.T) {
	for _, kind := range []verbs.MWType{1, 2} {
		w := windowWorld(t, options{})
		mw := w.b.newMW(kind)
		closing(t, mw)
		// Bound through another queue pair of b, to which no requests are sent.
		first := w.b.qp
		w.b.qp = w.b.newQP(first.granted)
		w.b.toRTS(verbs.QPAttr{PathMTU: verbs.MTU1024, AccessFlags: windowAccess, Port: 1}, w.a)
		w.b.bound(mw, 0, 100, remoteAll)
		second := w.b.qp
		w.b.qp = first
		w.a.mustPost(w.a.writeWR(1, 100, w.b.at(0), mw.RKey()))
		want := map[verbs.MWType]string{1: "1:SUCCESS ", 2: "1:REM_ACCESS_ERR "}[kind]
		if got := statuses(w.a.want(w.a.scq, 1)); got != want {
			t.Fatalf("type %d through another queue pair: %q, want %q", kind, got, want)
		}
		must.Do(t, second.Close())
		if bound := mw.mr != nil; bound != (kind == 1) {
			t.Fatalf("type %d: bound %v after its queue pair was destroyed", kind, bound)
		}
	}
}

// TestWindowsKeepParentsBusy: regions with bound windows and domains with windows cannot be
// closed.
func TestWindowsKeepParentsBusy(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.b.newMW(verbs.MWType2)
	pd := must.Get(w.b.ctx.AllocPD())(t)
	lone := must.Get(pd.AllocMW(verbs.MWType1))(t)
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("a domain with a window closed: %v", err)
	}
	w.b.bound(mw, 0, 100, remoteAll)
	if err := w.b.mr.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("a region with a window bound closed: %v", err)
	}
	if n := w.b.ctx.Objects().MW; n != 2 {
		t.Fatalf("%d windows counted, want 2", n)
	}
	for range 2 {
		must.Do(t, mw.Close())
		must.Do(t, lone.Close())
	}
	must.Do(t, pd.Close())
	must.Do(t, w.b.mr.Close())
	w.b.mr = w.b.register(windowAccess)
	w.a.mustPost(w.a.writeWR(1, 100, w.b.at(0), mw.RKey()))
	if got := statuses(w.a.want(w.a.scq, 1)); got != "1:REM_ACCESS_ERR " {
		t.Fatalf("through a closed window: %q", got)
	}
	if _, err := w.b.pd.AllocMW(3); !errors.Is(err, verbs.ErrInvalid) {
		t.Fatalf("a window of type 3: %v", err)
	}
}

// TestUCBindsWindows: UC also executes BIND_MW (rxe.c, validate_send_wr), in order with its
// neighbors; a refused one moves the queue pair to SQE. UC does not execute LOCAL_INV.
func TestUCBindsWindows(t *testing.T) {
	w := windowWorld(t, options{})
	q := must.Get(w.b.pd.CreateQP(&verbs.QPInitAttr{SendCQ: w.b.scq, RecvCQ: w.b.rcq, Type: verbs.QPTUC, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	mw := w.b.newMW(verbs.MWType1)
	closing(t, mw)
	rc := w.b.qp
	w.b.qp = q.(*queuePair)
	a := verbs.QPAttr{State: verbs.QPSInit, Port: 1, PathMTU: verbs.MTU1024, DestQPN: 99, AH: verbs.AHAttr{DGID: w.a.gid, Port: 1}}
	must.Do(t, q.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	a.State = verbs.QPSRTR
	must.Do(t, q.Modify(&a, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN))
	a.State = verbs.QPSRTS
	must.Do(t, q.Modify(&a, verbs.QPMState|verbs.QPMSQPSN))
	w.b.mustPost(w.b.writeWR(1, 8, 0, 0), w.b.bindWR(2, mw, 0, 100, remoteAll), w.b.writeWR(3, 8, 0, 0))
	w.b.ok(w.b.want(w.b.scq, 3), 1)
	if mw.mr == nil {
		t.Fatal("a BIND_MW of a UC queue pair did not bind")
	}
	if _, err := w.b.post(w.b.invWR(4, mw.RKey())); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("LOCAL_INV on UC: %v, want EINVAL", err)
	}
	bad := w.b.bindWR(5, mw, 0, 100, remoteAll)
	bad.BindMR = 0
	w.b.mustPost(bad)
	if got := statuses(w.b.want(w.b.scq, 1)); got != "5:MW_BIND_ERR " || w.b.state() != verbs.QPSSQE {
		t.Fatalf("a refused BIND_MW: %q, queue pair in %v", got, w.b.state())
	}
	must.Do(t, q.Close())
	w.b.qp = rc
}

// TestMemoryWindowLimit: at most MaxMW windows exist, closing one makes room, and regions do not
// count.
func TestMemoryWindowLimit(t *testing.T) {
	p := must.Get(New(Config{Fabric: fabric.New(fabric.Config{Virtual: true}), Devices: []DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1"), Limits: Limits{MaxMW: 2}},
	}}))(t)
	c := must.Get(p.Open("a"))(t)
	attr := must.Get(c.QueryDevice())(t)
	const caps = verbs.CapMemWindow | verbs.CapMemWindow2B | verbs.CapMemMgt | verbs.CapFlushGlobal | verbs.CapAtomicWrite
	if attr.MaxMW != 2 || attr.Caps&caps != caps || attr.Caps&verbs.CapMemWindow2A != 0 {
		t.Fatalf("the device says MaxMW %d, caps %b", attr.MaxMW, attr.Caps)
	}
	for _, op := range []verbs.WROpcode{verbs.WRBindMW, verbs.WRLocalInv, verbs.WRSendWithInv, verbs.WRFlush, verbs.WRAtomicWrite} {
		if !attr.Opcodes.Has(op) {
			t.Errorf("the device does not say that it executes %v", op)
		}
	}
	pd := must.Get(c.AllocPD())(t)
	one := must.Get(pd.AllocMW(verbs.MWType1))(t)
	two := must.Get(pd.AllocMW(verbs.MWType2))(t)
	if _, err := pd.AllocMW(verbs.MWType2); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("a third window: %v, want ENOMEM", err)
	}
	must.Do(t, one.Close())
	one = must.Get(pd.AllocMW(verbs.MWType1))(t)
	for _, o := range []verbs.Object{one, two, pd, c} {
		must.Do(t, o.Close())
	}
}

// TestWindowsUnderLoadInRealTime binds, uses and invalidates a window while the peer reads
// through it, with engines running on both goroutines: every READ succeeds or is refused, and
// nothing is read after the invalidation has completed. It is mainly for the race detector.
func TestWindowsUnderLoadInRealTime(t *testing.T) {
	for range 20 {
		w := windowWorld(t, options{real: true, jumbo: true})
		mw := w.b.newMW(verbs.MWType2)
		w.b.bound(mw, 0, 1<<16, remoteAll)
		var reads []request
		for i := range uint64(8) {
			r := w.a.send(i, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(int(i)<<13, 1<<13))
			r.SetRDMA(w.b.at(int(i)<<13), mw.RKey())
			reads = append(reads, r)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.a.mustPost(reads...)
		}()
		w.b.mustPost(w.b.invWR(1, mw.RKey()))
		inv := w.b.want(w.b.scq, 1)
		if s := inv[0].Status; s != verbs.WCSuccess && s != verbs.WCWRFlushErr {
			t.Fatalf("LOCAL_INV: %v", s)
		}
		<-done
		for _, c := range w.a.want(w.a.scq, 8) {
			if c.Status != verbs.WCSuccess && c.Status != verbs.WCRemAccessErr && c.Status != verbs.WCWRFlushErr {
				t.Fatalf("READ %d: %v", c.WRID, c.Status)
			}
		}
		must.Do(t, mw.Close())
	}
}
