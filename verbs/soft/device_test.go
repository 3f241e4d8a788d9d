package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// wantEvents takes the events and compares their types.
func (e *peer) wantEvents(want ...verbs.AsyncEventType) {
	e.w.t.Helper()
	if got := e.events(); !slices.Equal(got, want) {
		e.w.t.Fatalf("asynchronous events %v, want %v", got, want)
	}
}

func (e *peer) port() verbs.PortState {
	e.w.t.Helper()
	a := must.Get(e.ctx.QueryPort(1))(e.w.t)
	return a.State
}

// TestPortDownIsToldOnce: QueryPort reports the state, every context of the device gets one event
// per change, and the other device none.
func TestPortDownIsToldOnce(t *testing.T) {
	w := newWorld(t, options{})
	second := must.Get(w.p.Open("a"))(t)
	defer func() { must.Do(t, second.Close()) }()
	for range 2 { // the second changes nothing
		must.Do(t, w.p.SetPort("a", false))
	}
	if s := w.a.port(); s != verbs.PortDown || w.b.port() != verbs.PortActive {
		t.Fatalf("the port taken down is %v, the other %v", s, w.b.port())
	}
	must.Do(t, w.p.SetPort("a", true))
	if s := w.a.port(); s != verbs.PortActive {
		t.Fatalf("the port brought up is %v", s)
	}
	w.a.wantEvents(verbs.EventPortErr, verbs.EventPortActive)
	other := &peer{w: w, ctx: second.(*deviceContext)}
	other.wantEvents(verbs.EventPortErr, verbs.EventPortActive)
	w.b.wantEvents()
	if err := w.p.SetPort("c", false); !errors.Is(err, verbs.ErrUnknownDevice) {
		t.Fatalf("the port of a device that does not exist: %v", err)
	}
}

// TestShortOutageIsSurvived: requests sent while either port is down are resent by the retry
// timer and arrive once, and the queue pairs stay in RTS.
func TestShortOutageIsSurvived(t *testing.T) {
	for _, down := range []string{"a", "b"} {
		t.Run(down, func(t *testing.T) {
			w := newWorld(t, options{})
			fill(w.a.data()[:4096], 3)
			must.Do(t, w.p.SetPort(down, false))
			wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 4096))
			wr.SetRDMA(w.b.at(8192), w.b.mr.RKey())
			w.a.mustPost(wr)
			w.step()
			w.fab.AdvanceTo(w.fab.Now() + 3*verbs.AckTimeout(8)) // of seven
			w.step()
			if wcs := w.a.poll(w.a.scq); len(wcs) > 0 {
				t.Fatalf("completed over a port that is down: %+v", wcs)
			}
			for _, b := range w.b.data()[8192:12288] {
				if b != 0 {
					t.Fatal("a byte arrived over a port that is down")
				}
			}
			must.Do(t, w.p.SetPort(down, true))
			w.a.ok(w.a.want(w.a.scq, 1), 1)
			if string(w.a.data()[:4096]) != string(w.b.data()[8192:12288]) {
				t.Fatal("other bytes arrived")
			}
			for _, e := range []*peer{w.a, w.b} {
				if s := e.qp.current(); s != verbs.QPSRTS {
					t.Fatalf("%v is in %v", e.qp, s)
				}
			}
		})
	}
}

// TestLongOutageUsesUpRetries: the requester ends with RETRY_EXC_ERR in time, the responder stays
// in RTS.
func TestLongOutageUsesUpRetries(t *testing.T) {
	for _, down := range []string{"a", "b"} {
		w := newWorld(t, options{})
		must.Do(t, w.p.SetPort(down, false))
		start := w.fab.Now()
		wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 8))
		wr.SetRDMA(w.b.at(0), w.b.mr.RKey())
		w.a.mustPost(wr)
		c := w.a.want(w.a.scq, 1)[0]
		if c.Status != verbs.WCRetryExcErr {
			t.Fatalf("%s down: %v, want RETRY_EXC_ERR", down, c.Status)
		}
		if d := w.fab.Now() - start; d < 7*verbs.AckTimeout(8) || d > 16*verbs.AckTimeout(8) {
			t.Fatalf("%s down: after %v, want 8 times %v", down, d, verbs.AckTimeout(8))
		}
		if s := w.b.qp.current(); s != verbs.QPSRTS {
			t.Fatalf("%s down: the responder is in %v", down, s)
		}
	}
}

// TestPortStateOutlivesContexts: a port taken down while the device is not open is down for the
// next context, without an event.
func TestPortStateOutlivesContexts(t *testing.T) {
	r := newRig(t, false)
	id := r.b.listen(0)
	must.Do(t, r.p.SetPort("b", false))
	ida := r.a.resolve(id.LocalAddr())
	must.Do(t, ida.Connect(nil))
	if ev := r.a.event(verbs.CMUnreachable); ev.Status == 0 {
		t.Fatal("unreachable without a reason")
	}
	must.Do(t, r.p.SetPort("b", true))
	r.closeAll(id, ida)
	p := must.Get(New(Config{Fabric: r.fab, Devices: []DeviceConfig{{Name: "c", Addr: r.a.addr.Next().Next()}}}))(t)
	must.Do(t, p.SetPort("c", false))
	c := must.Get(p.Open("c"))(t)
	if a, err := c.QueryPort(1); err != nil || a.State != verbs.PortDown {
		t.Fatalf("state %v, error %v; want DOWN", a.State, err)
	}
	must.Do(t, c.Close())
}

// raiseQP raises an event of a peer's queue pair, as its engine would.
func (e *peer) raiseQP(t verbs.AsyncEventType) {
	e.ctx.async.raise(verbs.AsyncEvent{Type: t, QP: e.qp})
}

// TestAsyncUnacknowledgedKeepsTheObject: a taken event keeps its object until it is acknowledged.
// An event not taken vanishes with its object, and does not affect those of other objects.
func TestAsyncUnacknowledgedKeepsTheObject(t *testing.T) {
	w := newWorld(t, options{})
	e := w.a
	other := e.newQP(verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1})
	e.raiseQP(verbs.EventCommEst)
	e.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: other})
	e.raiseQP(verbs.EventSQDrained)
	ev, ok, err := e.ctx.Async().Get()
	must.Do(t, err)
	if !ok || ev.Type != verbs.EventCommEst || ev.QP != e.qp {
		t.Fatalf("first event %v %v, want COMM_EST of the queue pair", ev, ok)
	}
	if err := e.qp.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("closing with an unacknowledged event: %v, want ErrBusy", err)
	}
	if s := e.state(); s != verbs.QPSRTS {
		t.Fatalf("a refused Close left the queue pair in %v", s)
	}
	e.ctx.Async().Ack(ev)
	must.Do(t, e.qp.Close())
	ev, ok, err = e.ctx.Async().Get()
	must.Do(t, err)
	if !ok || ev.QP != other {
		t.Fatalf("event %v %v, want that of the other queue pair", ev, ok)
	}
	e.ctx.Async().Ack(ev)
	if ev, ok, _ := e.ctx.Async().Get(); ok {
		t.Fatalf("event %v of a closed queue pair", ev)
	}
	must.Do(t, other.Close())
}

// TestAsyncQueueIsBounded: however many events an object has that are not read, they take bounded
// memory, and each type raised is still reported.
func TestAsyncQueueIsBounded(t *testing.T) {
	w := newWorld(t, options{})
	for range 10 * maxUnread {
		w.a.raiseQP(verbs.EventSQDrained)
	}
	w.a.raiseQP(verbs.EventQPFatal)
	w.a.ctx.async.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: w.a.scq})
	evs := w.a.events()
	if n := len(evs); n != maxUnread+2 {
		t.Fatalf("%d events wait, want %d: the bound, and one of each later type and object", n, maxUnread+2)
	}
	if evs[maxUnread] != verbs.EventQPFatal || evs[maxUnread+1] != verbs.EventCQErr {
		t.Fatalf("the last events are %v, want QP_FATAL and CQ_ERR", evs[maxUnread:])
	}
	w.a.raiseQP(verbs.EventSQDrained)
	if evs := w.a.events(); len(evs) != 1 {
		t.Fatalf("events %v after reading all, want the new one", evs)
	}
}

// TestAsyncRingMayTake: the Notify function may take the event.
func TestAsyncRingMayTake(t *testing.T) {
	w := newWorld(t, options{})
	taken := 0
	w.a.ctx.Async().Notify(func() { taken += len(w.a.events()) })
	w.a.raiseQP(verbs.EventCommEst)
	w.a.ctx.Async().Notify(nil)
	if taken != 1 {
		t.Fatalf("%d events taken by who was told, want 1", taken)
	}
}

// TestParentsCloseLast: Close of a parent with living children returns ErrBusy and has no effect;
// afterwards every Close is idempotent and no object is counted.
func TestParentsCloseLast(t *testing.T) {
	w := newWorld(t, options{channel: true})
	e := w.a
	for _, o := range []verbs.Object{e.ctx, e.pd, e.ch, e.scq, e.rcq} {
		if err := o.Close(); !errors.Is(err, verbs.ErrBusy) || !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("closing %v with children: %v, want ErrBusy and EBUSY", o, err)
		}
	}
	if n := e.ctx.Objects(); n != (verbs.ObjectCount{PD: 1, MR: 1, CQ: 2, CompChannel: 1, QP: 1}) {
		t.Fatalf("objects %v", n)
	}
	for range 2 {
		for _, o := range []verbs.Object{e.qp, e.mr, e.scq, e.rcq, e.ch, e.pd} {
			must.Do(t, o.Close())
		}
	}
	if n := e.ctx.Objects(); !n.Zero() {
		t.Fatalf("objects left: %v", n)
	}
}

// TestClosedThingsAnswer: closed objects return errors, and never crash.
func TestClosedThingsAnswer(t *testing.T) {
	w := newWorld(t, options{channel: true})
	e := w.a
	wr := e.send(1, verbs.WRRDMAWrite, 0)
	must.Do(t, e.qp.Close())
	if _, err := e.post(wr); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("posting to a closed queue pair: %v, want EINVAL", err)
	}
	if err := e.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("modifying a closed queue pair: %v, want ErrClosed", err)
	}
	for _, o := range []verbs.Object{e.mr, e.scq, e.rcq, e.ch, e.pd} {
		must.Do(t, o.Close())
	}
	if _, err := e.pd.RegMR(e.at(0), 8, 0, 0); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("registering in a closed domain: %v, want ErrClosed", err)
	}
	if _, _, err := e.ch.GetEvent(); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("event of a closed channel: %v, want ErrClosed", err)
	}
	if err := verbs.Arm(e.scq, false); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("arming a closed queue: %v, want EINVAL", err)
	}
	must.Do(t, e.ctx.Close())
	var turn verbs.IOBatch
	if err := e.ctx.Execute(&turn); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("a turn of a closed context: %v, want ErrClosed", err)
	}
	if _, err := e.ctx.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("allocating on a closed context: %v, want ErrClosed", err)
	}
	// The device can be opened again.
	c := must.Get(w.p.Open("a"))(t)
	must.Do(t, c.Close())
}

// TestBadRegistrations: each error describes the mistake.
func TestBadRegistrations(t *testing.T) {
	w := newWorld(t, options{})
	heap := uint64(0xc000000000)
	for _, c := range []struct {
		name               string
		addr, length, iova uint64
		access             verbs.AccessFlags
		is                 error
	}{
		{"Go heap memory", heap, 4096, 0, 0, verbs.ErrInvalid},
		{"nothing", w.a.at(0), 0, 0, 0, verbs.ErrInvalid},
		{"beyond the arena", w.a.at(0), uint64(w.a.arena.Len()) + 1, 0, 0, verbs.ErrInvalid},
		{"what 32 bits would take for 16 bytes", w.a.at(0), 1<<32 + 16, 0, 0, verbs.ErrInvalid},
		{"an address space that wraps", w.a.at(0), 16, ^uint64(0) - 3, 0, verbs.ErrInvalid},
		{"remote write without local write", w.a.at(0), 16, 0, verbs.AccessRemoteWrite, verbs.ErrInvalid},
		{"unknown bits", w.a.at(0), 16, 0, 1 << 30, verbs.ErrInvalid},
	} {
		m, err := w.a.pd.RegMR(c.addr, c.length, c.iova, c.access)
		if !errors.Is(err, c.is) {
			t.Errorf("registering %s: %v, %v; want %v", c.name, m, err, c.is)
		}
	}
}

// TestIOVA: requests address the memory by iova, the peer's and the local ones.
func TestIOVA(t *testing.T) {
	w := newWorld(t, options{})
	const iova = 0x1000
	m := must.Get(w.b.pd.RegMR(w.b.at(512), 4096, iova, allAccess))(t)
	defer m.Close()
	fill(w.a.data()[:100], 1)
	wr := w.a.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.a.sge(0, 100))
	wr.SetRDMA(iova+8, m.RKey())
	w.a.mustPost(wr)
	w.a.ok(w.a.want(w.a.scq, 1), 1)
	if string(w.b.data()[520:620]) != string(w.a.data()[:100]) {
		t.Fatalf("a WRITE to iova + 8 is not at the region's byte 8")
	}
}

// TestUnknownDevicesAndConfigs: they are refused, with the values in the error.
func TestUnknownDevicesAndConfigs(t *testing.T) {
	_, err := Default().Open("mlx5_0")
	var de *verbs.DeviceError
	if !errors.As(err, &de) || !errors.Is(err, verbs.ErrUnknownDevice) || len(de.Known) != 4 {
		t.Fatalf("opening an unknown device: %v", err)
	}
	a := netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]Config{
		"no name":       {Devices: []DeviceConfig{{Addr: a}}},
		"no address":    {Devices: []DeviceConfig{{Name: "x"}}},
		"same name":     {Devices: []DeviceConfig{{Name: "x", Addr: a}, {Name: "x", Addr: a.Next()}}},
		"same address":  {Devices: []DeviceConfig{{Name: "x", Addr: a}, {Name: "y", Addr: a}}},
		"no such MTU":   {Devices: []DeviceConfig{{Name: "x", Addr: a, MTU: 77}}},
		"jumbo unasked": {Fabric: fabric.New(fabric.Config{}), Devices: []DeviceConfig{{Name: "x", Addr: a, MTU: verbs.MTUJumbo}}},
		"limits":        {Devices: []DeviceConfig{{Name: "x", Addr: a, Limits: Limits{MaxQP: 1 << 20}}}},
	} {
		if _, err := New(c); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	// Two providers cannot have one address on one fabric at the same time.
	f := fabric.New(fabric.Config{Virtual: true})
	ds := []DeviceConfig{{Name: "x", Addr: a}}
	p := must.Get(New(Config{Fabric: f, Devices: ds}))(t)
	q := must.Get(New(Config{Fabric: f, Devices: ds}))(t)
	c := must.Get(p.Open("x"))(t)
	if _, err := q.Open("x"); !errors.Is(err, fabric.ErrGIDInUse) {
		t.Fatalf("the same address twice: %v, want ErrGIDInUse", err)
	}
	must.Do(t, c.Close())
	if c, err = q.Open("x"); err != nil {
		t.Fatalf("the address is free again: %v", err)
	}
	must.Do(t, c.Close())
}

// TestSameSeedSameTrace: in virtual time a run repeats packet by packet, keys and queue pair
// numbers included.
func TestSameSeedSameTrace(t *testing.T) {
	run := func(seed uint64) uint64 {
		w := newWorld(t, options{seed: seed, mtu: verbs.MTU256})
		w.fab.SetAll(fabric.Link{Loss: 0.1, Dup: 0.1, Reorder: 0.1, Delay: time.Microsecond, Jitter: time.Microsecond})
		var d xxhash.Digest
		d.Reset()
		w.fab.SetTrace(func(ev fabric.Event) {
			fmt.Fprintf(&d, "%v %x %d %v %v %v", ev.Now, ev.Hdr, ev.PayloadHash, ev.Verdict, ev.Due, ev.Copy)
		}, true)
		for i := range 40 {
			for _, e := range []*peer{w.a, w.b} {
				e.recv(uint64(i), e.sge(i*2000, 2000))
			}
			for _, e := range []*peer{w.a, w.b} {
				e.mustPost(e.send(uint64(i), verbs.WRSend, verbs.SendSignaled, e.sge(1<<18, i*40)))
			}
			w.step()
		}
		w.settle()
		w.a.ok(w.a.want(w.a.scq, 40), 0)
		fmt.Fprintf(&d, "%d %d", w.a.mr.RKey(), w.b.mr.RKey())
		return d.Sum64()
	}
	if a, b := run(5), run(5); a != b {
		t.Fatalf("seed 5 gives trace %x, then %x", a, b)
	}
	if run(5) == run(6) {
		t.Fatalf("seeds 5 and 6 give the same trace: the hash sees nothing")
	}
}

// TestNothingIsLeftMapped: closing a world unpins and unmaps everything.
func TestNothingIsLeftMapped(t *testing.T) {
	before, _ := mem.Live()
	t.Run("world", func(t *testing.T) { newWorld(t, options{real: true, jumbo: true}) })
	if after, _ := mem.Live(); after != before {
		t.Fatalf("%d arenas before, %d after", before, after)
	}
}
