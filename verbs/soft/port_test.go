package soft

import (
	"errors"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
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
	a, err := e.ctx.QueryPort(1)
	must(e.w.t, err)
	return a.State
}

// TestPortDownIsToldOnce: the state shows in QueryPort, every context of the
// device gets one event per change, and the other device none.
func TestPortDownIsToldOnce(t *testing.T) {
	w := newWorld(t, options{})
	second, err := w.p.Open("a")
	must(t, err)
	defer func() { must(t, second.Close()) }()
	for range 2 { // the second changes nothing
		must(t, w.p.SetPort("a", false))
	}
	if s := w.a.port(); s != verbs.PortDown || w.b.port() != verbs.PortActive {
		t.Fatalf("the port taken down is %v, the other %v", s, w.b.port())
	}
	must(t, w.p.SetPort("a", true))
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

// TestShortOutageIsSurvived: what is sent while either port is down is sent again
// by the retry timer, arrives once, and the queue pairs stay in RTS.
func TestShortOutageIsSurvived(t *testing.T) {
	for _, down := range []string{"a", "b"} {
		t.Run(down, func(t *testing.T) {
			w := newWorld(t, options{})
			fill(w.a.data()[:4096], 3)
			must(t, w.p.SetPort(down, false))
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
			must(t, w.p.SetPort(down, true))
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

// TestLongOutageUsesUpRetries: the requester ends with RETRY_EXC_ERR in time, the
// responder notices nothing.
func TestLongOutageUsesUpRetries(t *testing.T) {
	for _, down := range []string{"a", "b"} {
		w := newWorld(t, options{})
		must(t, w.p.SetPort(down, false))
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

// TestPortStateOutlivesContexts: a port taken down while nobody has the device
// open is down for who opens it, without an event.
func TestPortStateOutlivesContexts(t *testing.T) {
	r := newRig(t, false)
	id := r.b.listen(0)
	must(t, r.p.SetPort("b", false))
	ida := r.a.resolve(id.LocalAddr())
	must(t, ida.Connect(nil))
	if ev := r.a.event(verbs.CMUnreachable); ev.Status == 0 {
		t.Fatal("unreachable without a reason")
	}
	must(t, r.p.SetPort("b", true))
	r.closeAll(id, ida)
	p, err := New(Config{Fabric: r.fab, Devices: []DeviceConfig{{Name: "c", Addr: r.a.addr.Next().Next()}}})
	must(t, err)
	must(t, p.SetPort("c", false))
	c, err := p.Open("c")
	must(t, err)
	if a, err := c.QueryPort(1); err != nil || a.State != verbs.PortDown {
		t.Fatalf("state %v, error %v; want DOWN", a.State, err)
	}
	must(t, c.Close())
}
