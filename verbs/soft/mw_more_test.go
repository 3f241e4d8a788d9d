package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// TestUCBindsWindows: BIND_MW is for UC too (rxe.c, validate_send_wr), in order
// with what is around it; a refused one ends in SQE. LOCAL_INV is not for UC.
func TestUCBindsWindows(t *testing.T) {
	w := windowWorld(t, options{})
	q, err := w.b.pd.CreateQP(&verbs.QPInitAttr{SendCQ: w.b.scq, RecvCQ: w.b.rcq, Type: verbs.QPTUC, Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
	mw := w.b.newMW(verbs.MWType1)
	closing(t, mw)
	rc := w.b.qp
	w.b.qp = q.(*queuePair)
	a := verbs.QPAttr{State: verbs.QPSInit, Port: 1, PathMTU: verbs.MTU1024, DestQPN: 99, AH: verbs.AHAttr{DGID: w.a.gid, Port: 1}}
	must(t, q.Modify(&a, verbs.QPMState|verbs.QPMPKeyIndex|verbs.QPMPort|verbs.QPMAccessFlags))
	a.State = verbs.QPSRTR
	must(t, q.Modify(&a, verbs.QPMState|verbs.QPMAV|verbs.QPMPathMTU|verbs.QPMDestQPN|verbs.QPMRQPSN))
	a.State = verbs.QPSRTS
	must(t, q.Modify(&a, verbs.QPMState|verbs.QPMSQPSN))
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
	must(t, q.Close())
	w.b.qp = rc
}

// TestMemoryWindowLimit: no more than MaxMW, one back makes room, and regions do
// not count.
func TestMemoryWindowLimit(t *testing.T) {
	p, err := New(Config{Fabric: fabric.New(fabric.Config{Virtual: true}), Devices: []DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1"), Limits: Limits{MaxMW: 2}},
	}})
	must(t, err)
	c, err := p.Open("a")
	must(t, err)
	attr, err := c.QueryDevice()
	must(t, err)
	const caps = verbs.CapMemWindow | verbs.CapMemWindow2B | verbs.CapMemMgt | verbs.CapFlushGlobal | verbs.CapAtomicWrite
	if attr.MaxMW != 2 || attr.Caps&caps != caps || attr.Caps&verbs.CapMemWindow2A != 0 {
		t.Fatalf("the device says MaxMW %d, caps %b", attr.MaxMW, attr.Caps)
	}
	for _, op := range []verbs.WROpcode{verbs.WRBindMW, verbs.WRLocalInv, verbs.WRSendWithInv, verbs.WRFlush, verbs.WRAtomicWrite} {
		if !attr.Opcodes.Has(op) {
			t.Errorf("the device does not say that it executes %v", op)
		}
	}
	pd, err := c.AllocPD()
	must(t, err)
	one, err := pd.AllocMW(verbs.MWType1)
	must(t, err)
	two, err := pd.AllocMW(verbs.MWType2)
	must(t, err)
	if _, err := pd.AllocMW(verbs.MWType2); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("a third window: %v, want ENOMEM", err)
	}
	must(t, one.Close())
	one, err = pd.AllocMW(verbs.MWType1)
	must(t, err)
	for _, o := range []verbs.Object{one, two, pd, c} {
		must(t, o.Close())
	}
}

// TestWindowsUnderLoadInRealTime binds, uses and takes away a window while the
// peer reads through it, on engines that run wherever they are kicked: every
// READ succeeds or is refused, and nothing is read after the invalidation has
// completed. It is for the race detector above all.
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
		must(t, mw.Close())
	}
}
