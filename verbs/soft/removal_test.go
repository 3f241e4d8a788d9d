package soft

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// gone checks that a call says that the device was removed, with EIO.
func gone(t tb, call string, err error) {
	t.Helper()
	if !errors.Is(err, verbs.ErrDeviceRemoved) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s on a removed device: %v, want ErrDeviceRemoved and EIO", call, err)
	}
}

// TestRemovedDeviceRefusesEverythingButClose: each call that makes, changes or
// asks answers ErrDeviceRemoved, and a turn does nothing; objects close in the usual
// order, the context last; Devices and Open do not know the device.
func TestRemovedDeviceRefusesEverythingButClose(t *testing.T) {
	w := newWorld(t, options{channel: true})
	e := w.a
	w.a.recv(9, w.a.sge(0, 64)) // outstanding
	must(t, w.p.Remove("a"))
	if got := e.events(); !slices.Equal(got, []verbs.AsyncEventType{verbs.EventDeviceFatal}) {
		t.Fatalf("events %v, want one DEVICE_FATAL", got)
	}
	calls := map[string]func() error{
		"QueryDevice":       func() error { _, err := e.ctx.QueryDevice(); return err },
		"QueryPort":         func() error { _, err := e.ctx.QueryPort(1); return err },
		"QueryGID":          func() error { _, err := e.ctx.QueryGID(1, 0); return err },
		"QueryGIDEntry":     func() error { _, err := e.ctx.QueryGIDEntry(1, 0); return err },
		"QueryPKey":         func() error { _, err := e.ctx.QueryPKey(1, 0); return err },
		"AllocPD":           func() error { _, err := e.ctx.AllocPD(); return err },
		"CreateCompChannel": func() error { _, err := e.ctx.CreateCompChannel(); return err },
		"CreateCQ":          func() error { _, err := e.ctx.CreateCQ(4, nil, 0, 0); return err },
		"Resize":            func() error { return e.scq.Resize(8) },
		"RegMR":             func() error { _, err := e.pd.RegMR(e.at(0), 64, 0, 0); return err },
		"CreateQP": func() error {
			_, err := e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.scq, RecvCQ: e.rcq, Type: verbs.QPTRC})
			return err
		},
		"Modify": func() error { return e.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState) },
		"Query":  func() error { _, err := e.qp.Query(); return err },
		"a post": func() error { _, err := e.post(e.send(1, verbs.WRSend, 0)); return err },
		"a poll": func() error { _, err := verbs.Poll(e.scq, make([]verbs.WC, 1)); return err },
		"an arm": func() error { return verbs.Arm(e.scq, false) },
		"a turn of nothing": func() error {
			var turn verbs.Turn
			return e.ctx.Turn(&turn)
		},
	}
	for name, call := range calls {
		gone(t, name, call())
	}
	infos, err := w.p.Devices()
	must(t, err)
	if len(infos) != 1 || infos[0].Name != "b" {
		t.Fatalf("devices %+v, want b alone", infos)
	}
	for _, err := range []error{w.p.Remove("a"), w.p.SetPort("a", false), second(w.p.Open("a"))} {
		d := (*verbs.DeviceError)(nil)
		if !errors.As(err, &d) || d.Name != "a" || !slices.Equal(d.Known, []string{"b"}) {
			t.Fatalf("asking for the removed device: %v, want a DeviceError that knows b", err)
		}
	}
	for _, o := range []verbs.Object{e.ctx, e.pd, e.ch, e.scq} {
		if err := o.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("closing %v with children: %v, want ErrBusy", o, err)
		}
	}
	// newWorld's cleanup closes everything in order.
}

func second[T any](_ T, err error) error { return err }

// TestRemovalIsSilence: what was outstanding never completes, and the peer's
// requests end with RETRY_EXC_ERR.
func TestRemovalIsSilence(t *testing.T) {
	w := newWorld(t, options{})
	w.b.recv(7, w.b.sge(0, 64))
	wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 4096))
	wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
	fill(w.b.data()[:4096], 5)
	w.b.mustPost(wr)
	must(t, w.p.Remove("a"))
	if c := w.b.want(w.b.scq, 1)[0]; c.Status != verbs.WCRetryExcErr {
		t.Fatalf("the peer's write: %v, want RETRY_EXC_ERR", c.Status)
	}
	for _, b := range w.a.data()[:4096] {
		if b != 0 {
			t.Fatal("a removed device wrote to memory")
		}
	}
}

// TestNobodyReadsMemoryOfARemovedDevice: packets on their way that point into its
// memory are lost: requests it sent as well as answers to READs. What the owner
// puts into that memory afterwards arrives nowhere.
func TestNobodyReadsMemoryOfARemovedDevice(t *testing.T) {
	for _, read := range []bool{false, true} {
		// b is attached behind a: what it sends in a step waits at a.
		w := newWorld(t, options{})
		from, to := w.b.data()[:2048], w.a.data()[:2048]
		if read {
			wr := w.a.send(1, verbs.WRRDMARead, verbs.SendSignaled, w.a.sge(0, 2048))
			wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
			w.a.mustPost(wr)
		} else {
			wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 2048))
			wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
			w.b.mustPost(wr)
		}
		sent := w.b.sent()
		w.fab.Step()
		if w.b.sent() == sent {
			t.Fatalf("read %v: nothing is on its way, so the test shows nothing", read)
		}
		must(t, w.p.Remove("b"))
		fill(from, 9)
		w.settle()
		for _, b := range to {
			if b != 0 {
				t.Fatalf("read %v: memory of a removed device was read after Remove had returned", read)
			}
		}
	}
}

// sent is how many packets the device has given to the link.
func (e *peer) sent() uint64 { return e.ctx.dev.port.Load().Stats().TxPackets }

// TestRestoredDeviceIsANewOne: under the same name and address, beside what is
// left of the old one; nothing of the old one works again.
func TestRestoredDeviceIsANewOne(t *testing.T) {
	w := newWorld(t, options{})
	old := w.a.ctx
	must(t, w.p.Remove("a"))
	must(t, w.p.Restore("a"))
	if err := w.p.Restore("a"); !errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EEXIST) {
		t.Fatalf("restoring a device that is there: %v, want ErrInvalid and EEXIST", err)
	}
	if err := w.p.Restore("z"); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Fatalf("restoring what never was: %v", err)
	}
	infos, err := w.p.Devices()
	must(t, err)
	if len(infos) != 2 || infos[0].Name != "a" || infos[0].GUID != old.Device().GUID {
		t.Fatalf("devices %+v, want a and b as before", infos)
	}
	gone(t, "a turn of the old context", old.Turn(new(verbs.Turn)))
	// A new pair, on the new device.
	fresh := *w
	fresh.a = w.newPeer("a", options{memory: 1 << 16, cqe: 64, access: allAccess, cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	fresh.b = w.newPeer("b", options{memory: 1 << 16, cqe: 64, access: allAccess, cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	for _, q := range []*queuePair{w.a.qp, w.b.qp} {
		if fresh.a.qp.number == q.number && q.dev.gid == fresh.a.gid {
			t.Fatal("the new device has given the number of a queue pair that a peer is connected with")
		}
	}
	fresh.connect(options{mtu: verbs.MTU1024, access: allAccess})
	fill(fresh.a.data()[:512], 1)
	wr := fresh.a.send(3, verbs.WRRDMAWrite, verbs.SendSignaled, fresh.a.sge(0, 512))
	wr.SetRDMA(fresh.b.at(0), fresh.b.mr.RKey())
	fresh.a.mustPost(wr)
	fresh.a.ok(fresh.a.want(fresh.a.scq, 1), 3)
	if string(fresh.a.data()[:512]) != string(fresh.b.data()[:512]) {
		t.Fatal("the new device carries other bytes")
	}
	fresh.close()
}
