package soft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// cmRig is two devices that connect through identifiers, in virtual time or in real time.
type cmRig struct {
	t    *testing.T
	fab  *fabric.Fabric
	p    *Provider
	a, b *cmEnd
	wake chan struct{} // signaled when an event is queued at an end
}

// cmEnd is one side, with the objects that queue pairs need.
type cmEnd struct {
	r    *cmRig
	name string
	addr netip.Addr
	ctx  verbs.Context
	pd   verbs.PD
	cq   verbs.CQ
	ch   verbs.CMChannel
	got  []string // every event taken
}

// quickCM makes failures quick in real time: 4 ms between repetitions.
var quickCM = CMConfig{ResponseTimeout: 10, MaxRetries: 7, ServiceTimeout: 12, TimeWait: 5 * time.Millisecond}

func newRig(t *testing.T, real bool, change ...func(*Config)) *cmRig {
	t.Helper()
	r := &cmRig{t: t, wake: make(chan struct{}, 1), fab: fabric.New(fabric.Config{Virtual: !real, Seed: 1, JumboMTU: true})}
	cfg := Config{Fabric: r.fab, Devices: []DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")},
		{Name: "b", Addr: netip.MustParseAddr("10.0.0.2")},
	}}
	if real {
		cfg.CM = quickCM
	}
	for _, c := range change {
		c(&cfg)
	}
	p := must.Get(New(cfg))(t)
	r.p = p
	r.a, r.b = r.end(0), r.end(1)
	t.Cleanup(r.close)
	return r
}

func (r *cmRig) end(i int) *cmEnd {
	t, d := r.t, r.p.plugged()[i]
	e := &cmEnd{r: r, name: d.cfg.Name, addr: d.cfg.Addr}
	e.open()
	var err error
	e.ch, err = r.p.CreateCMChannel()
	must.Do(t, err)
	e.ch.Notify(func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
	return e
}

// open opens the device and makes the objects that queue pairs need.
func (e *cmEnd) open() {
	t := e.r.t
	t.Helper()
	var err error
	e.ctx, err = e.r.p.Open(e.name)
	must.Do(t, err)
	e.pd = must.Get(e.ctx.AllocPD())(t)
	e.cq = must.Get(e.ctx.CreateCQ(64, nil, 0, 0))(t)
}

// close closes everything and fails the test if an object, a held port or a device on the fabric
// is left. It first lets the machines finish ending their connections.
func (r *cmRig) close() {
	t := r.t
	for _, e := range []*cmEnd{r.a, r.b} {
		e.drain()
		must.Do(t, e.ch.Close())
	}
	if r.fab.Virtual() {
		r.settle()
		for _, d := range r.p.plugged() {
			if n := d.cm.machine.Conns(); n != 0 {
				t.Errorf("%s: the machine keeps %d connections", d.cfg.Name, n)
			}
		}
	}
	for _, d := range r.p.plugged() {
		if n := len(d.cm.byQP); n != 0 {
			t.Errorf("%s: %d queue pairs are remembered", d.cfg.Name, n)
		}
	}
	for _, e := range []*cmEnd{r.a, r.b} {
		must.Do(t, e.cq.Close())
		must.Do(t, e.pd.Close())
		if n := e.ctx.Objects(); !n.Zero() {
			t.Errorf("%s: left behind: %v", e.name, n)
		}
		must.Do(t, e.ctx.Close())
	}
	if n := r.p.CMObjects(); !n.Zero() {
		t.Errorf("left behind: %v", n)
	}
	n := 0
	for _, ports := range r.p.cm.ports {
		n += len(ports.held)
	}
	if n != 0 {
		t.Errorf("%d ports are still held", n)
	}
	for _, d := range r.p.plugged() {
		if d.opens != 0 || d.port.Load() != nil {
			t.Errorf("%s: still on the fabric, %d users", d.cfg.Name, d.opens)
		}
	}
}

// settle lets virtual time run until no event is left.
func (r *cmRig) settle() {
	for {
		for r.fab.Step() {
		}
		at, ok := r.fab.NextEvent()
		if !ok {
			return
		}
		r.fab.AdvanceTo(at)
	}
}

// patience is how long an event may take in real time, on a loaded machine.
const patience = 20 * time.Second

// until lets time pass until cond holds.
func (r *cmRig) until(what string, cond func() bool) {
	r.t.Helper()
	if !r.fab.Virtual() {
		for late := time.After(patience); !cond(); {
			select {
			case <-r.wake:
			case <-late:
				r.t.Fatalf("%s: not within %v; a saw %v, b saw %v", what, patience, r.a.got, r.b.got)
			}
		}
		return
	}
	for !cond() {
		if r.fab.Step() {
			continue
		}
		at, ok := r.fab.NextEvent()
		if !ok {
			if cond() {
				return
			}
			r.t.Fatalf("%s: nothing happens any more; a saw %v, b saw %v", what, r.a.got, r.b.got)
		}
		r.fab.AdvanceTo(at)
	}
}

// take takes an event if there is one, and acknowledges it.
func (e *cmEnd) take() (verbs.CMEvent, bool) {
	e.r.t.Helper()
	ev, ok, err := e.ch.GetEvent()
	must.Do(e.r.t, err)
	if ok {
		e.got = append(e.got, ev.Type.String())
		e.ch.Ack(ev)
	}
	return ev, ok
}

// event waits for the next event, which must be of type want.
func (e *cmEnd) event(want verbs.CMEventType) verbs.CMEvent {
	e.r.t.Helper()
	ev := e.any()
	if ev.Type != want {
		e.r.t.Fatalf("%s got %v with status %d, want %v; it saw %v", e.name, ev.Type, ev.Status, want, e.got)
	}
	return ev
}

// any waits for the next event.
func (e *cmEnd) any() (ev verbs.CMEvent) {
	e.r.t.Helper()
	e.r.until("an event at "+e.name, func() bool {
		var ok bool
		ev, ok = e.take()
		return ok
	})
	return ev
}

// drain discards events, and closes identifiers that they bring.
func (e *cmEnd) drain() {
	for {
		ev, ok := e.take()
		if !ok {
			return
		}
		if ev.Type == verbs.CMConnectRequest {
			must.Do(e.r.t, ev.ID.Close())
		}
	}
}

func (e *cmEnd) id() verbs.CMID {
	e.r.t.Helper()
	id := must.Get(e.ch.CreateID(verbs.PSTCP, 7))(e.r.t)
	return id
}

// listen listens on the end's address.
func (e *cmEnd) listen(backlog int) verbs.CMID {
	e.r.t.Helper()
	id := e.id()
	must.Do(e.r.t, id.Bind(netip.AddrPortFrom(e.addr, 0)))
	must.Do(e.r.t, id.Listen(backlog))
	return id
}

// resolve makes an identifier with a route and a queue pair.
func (e *cmEnd) resolve(dst netip.AddrPort) verbs.CMID {
	e.r.t.Helper()
	id := e.route(dst)
	e.qp(id)
	return id
}

// route makes an identifier with a route.
func (e *cmEnd) route(dst netip.AddrPort) verbs.CMID {
	e.r.t.Helper()
	id := e.id()
	must.Do(e.r.t, id.ResolveAddr(netip.AddrPortFrom(e.addr, 0), dst, time.Second))
	e.event(verbs.CMAddrResolved)
	must.Do(e.r.t, id.ResolveRoute(time.Second))
	e.event(verbs.CMRouteResolved)
	return id
}

func (e *cmEnd) qp(id verbs.CMID) {
	e.r.t.Helper()
	must.Do(e.r.t, id.CreateQP(e.pd, &verbs.QPInitAttr{
		SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))
}

// pair connects a to b and returns both ends.
func (r *cmRig) pair() (listener, ida, idb verbs.CMID) {
	r.t.Helper()
	listener = r.b.listen(0)
	ida = r.a.resolve(listener.LocalAddr())
	must.Do(r.t, ida.Connect(nil))
	idb = r.b.event(verbs.CMConnectRequest).ID
	r.b.qp(idb)
	must.Do(r.t, idb.Accept(nil))
	r.a.event(verbs.CMEstablished)
	r.b.event(verbs.CMEstablished)
	return listener, ida, idb
}

func (r *cmRig) state(id verbs.CMID) verbs.QPState {
	r.t.Helper()
	a := must.Get(id.QP().Query())(r.t)
	return a.State
}

// lose drops the datagrams first to last from one side to the other, counted from now.
func (r *cmRig) lose(from, to *cmEnd, first, last uint64) {
	r.fab.SetLink(verbs.GIDFromAddr(from.addr), verbs.GIDFromAddr(to.addr), fabric.Link{Rules: []fabric.Rule{
		{Opcodes: []wire.Opcode{wire.UDSendOnly}, From: first, To: last, Drop: true},
	}})
}

// closeAll closes identifiers; none may be busy.
func (r *cmRig) closeAll(ids ...verbs.CMID) {
	r.t.Helper()
	for _, id := range ids {
		must.Do(r.t, id.Close())
	}
}

// inBoth runs a test in virtual time and in real time.
func inBoth(t *testing.T, fn func(t *testing.T, r *cmRig)) {
	for _, real := range []bool{false, true} {
		t.Run(fmt.Sprintf("real=%v", real), func(t *testing.T) { fn(t, newRig(t, real)) })
	}
}
