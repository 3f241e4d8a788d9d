package rpma

import (
	"bytes"
	"net/netip"
	"strconv"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// foreign is a peer of librdmacm at device i, which knows nothing of this package.
type foreign struct {
	t   testing.TB
	r   *rig
	lib *rdmacm.Library
	ch  *rdmacm.EventChannel
	at  netip.AddrPort
}

func (r *rig) foreign(i int) *foreign {
	r.t.Helper()
	b := mainBed(r.t)
	f := &foreign{t: r.t, r: r, lib: must.Get(rdmacm.Open(rdmacm.Config{Provider: b.provider(r.t), Device: b.devices[i]}))(r.t)}
	r.t.Cleanup(func() { must.Do(r.t, f.lib.Close()) })
	f.ch = must.Get(f.lib.CreateEventChannel())(r.t)
	r.t.Cleanup(func() { must.Do(r.t, f.ch.Destroy()) })
	f.at = netip.AddrPortFrom(netip.MustParseAddr(r.addr[i]), 0)
	return f
}

// id makes an identifier that reports to the channel of f.
func (f *foreign) id() *rdmacm.ID {
	f.t.Helper()
	id := must.Get(f.lib.CreateID(f.ch, nil, verbs.PSTCP))(f.t)
	f.owns(id)
	return id
}

func (f *foreign) owns(id *rdmacm.ID) {
	f.t.Cleanup(func() {
		ctx := f.r.ctx
		if err := id.Destroy(ctx); err != nil {
			f.t.Error(err)
		}
	})
}

// event takes the next event, which must be of the given type.
func (f *foreign) event(want verbs.CMEventType) *rdmacm.Event {
	f.t.Helper()
	ev := must.Get(f.ch.GetEvent(f.r.ctx))(f.t)
	ev.Ack()
	if ev.Type != want {
		f.t.Fatalf("the event is %v (%v), want %v", ev.Type, ev.Err(), want)
	}
	return ev
}

var foreignQP = rdmacm.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}

// Rule: a request, and an answer, have librpma's parameters: 7 retries of both kinds, the largest depths, and
// the private data of the program alone. The inline room is at least 8 bytes.
func TestConnectionParameters(t *testing.T) {
	r := newRig(t)
	f := r.foreign(1)
	l := f.id()
	must.Do(t, l.BindAddr(f.at))
	must.Do(t, l.Listen(0))
	q := must.Get(r.peer[0].NewConnReq(r.ctx, r.addr[1], strconv.Itoa(int(l.LocalAddr().Port())), nil))(t)
	c := must.Get(q.Connect([]byte("from librpma")))(t)
	r.closes(c)
	ev := f.event(verbs.CMConnectRequest)
	f.owns(ev.ID)
	attr := r.rt[0].DeviceAttr()
	most := uint8(min(attr.MaxQPRdAtom, attr.MaxQPInitRdAtom, 0xff))
	if p := ev.Conn; p.RetryCount != 7 || p.RNRRetryCount != 7 || p.ResponderResources != most || p.InitiatorDepth != most || string(bytes.TrimRight(p.PrivateData, "\x00")) != "from librpma" {
		t.Errorf("the request has %+v, want 7 retries of both kinds, depths of %d and the private data", p, most)
	}
	qp := foreignQP
	must.Do(t, ev.ID.CreateQP(nil, &qp))
	must.Do(t, ev.ID.Accept(r.ctx, &verbs.ConnParam{PrivateData: []byte("from librdmacm"), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}))
	f.event(verbs.CMEstablished)
	r.event(c, Established)
	if got := string(bytes.TrimRight(c.PrivateData(), "\x00")); got != "from librdmacm" {
		t.Errorf("the private data of the answer is %q", got)
	}
	if got := c.conn; got == nil || c.pending.QPNum() != c.QPNum() {
		t.Errorf("the queue pair has number %d, want %d", c.QPNum(), c.pending.QPNum())
	}
	must.Do(t, c.Disconnect())
	f.event(verbs.CMDisconnected)
	r.event(c, Closed)
	must.Do(t, ev.ID.Disconnect(r.ctx))
}

// Rule: a peer of librdmacm exchanges messages and immediate data with this end, which accepts it: the
// immediate data is in network order on the wire.
func TestMessagesWithAForeignPeer(t *testing.T) {
	r := newRig(t)
	f := r.foreign(0)
	ep, port := r.listen()
	id := f.id()
	to := netip.AddrPortFrom(netip.MustParseAddr(r.addr[1]), ep.Addr().Port())
	_ = port
	must.Do(t, id.ResolveAddr(r.ctx, f.at, to, patience))
	f.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(r.ctx, patience))
	f.event(verbs.CMRouteResolved)
	qp := foreignQP
	must.Do(t, id.CreateQP(nil, &qp))
	mem := must.Get(verbs.AllocMemory(4096))(t)
	t.Cleanup(func() { must.Do(t, mem.Close()) })
	mr := must.Get(id.RegMsgs(mem.Bytes()))(t)
	t.Cleanup(func() { must.Do(t, mr.Dereg()) })
	must.Do(t, id.PostRecv(1, mem.Bytes()[:64], mr))
	must.Do(t, id.Connect(r.ctx, &verbs.ConnParam{PrivateData: []byte("hi"), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}))
	q := must.Get(ep.NextConnReq(r.ctx, nil))(t)
	into := r.mr(1, 64, RecvBuf|SendBuf)
	must.Do(t, q.Recv(into, 0, 32, 2))
	if got := string(bytes.TrimRight(q.PrivateData(), "\x00")); got != "hi" {
		t.Errorf("the private data of the request is %q", got)
	}
	s := must.Get(q.Connect(nil))(t)
	r.closes(s)
	f.event(verbs.CMEstablished)
	r.event(s, Established)
	copy(into.Bytes()[32:], "to the foreign peer")
	must.Do(t, s.SendWithImm(into, 32, 19, CompletionAlways, 0x01020304, 3))
	r.done(s.CQ(), 3)
	wc := must.Get(id.GetRecvComp(r.ctx))(t)
	if wc.ImmData != verbs.NetworkOrder(0x01020304) || string(mem.Bytes()[:wc.ByteLen]) != "to the foreign peer" {
		t.Errorf("the foreign peer got %q with the number %x, want it in network order", mem.Bytes()[:wc.ByteLen], wc.ImmData)
	}
	copy(mem.Bytes()[64:], "from the foreign peer")
	n, err := id.PostSendList([]rdmacm.SendWR{{WRID: 4, Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, Imm: 0x0a0b0c0d, SGL: []verbs.SGE{mr.SGE(64, 21)}}})
	if n != 1 {
		t.Fatal(err)
	}
	if wc := r.done(s.CQ(), 2); wc.Imm != 0x0a0b0c0d || string(into.Bytes()[:wc.Bytes]) != "from the foreign peer" {
		t.Errorf("the message arrived as %q with the number %x", into.Bytes()[:wc.Bytes], wc.Imm)
	}
	must.Do(t, id.Disconnect(r.ctx))
	r.event(s, Closed)
	must.Do(t, s.Disconnect())
	f.event(verbs.CMDisconnected)
}

// Rule: the number of the queue pair stays when the connection ends.
func TestQPNumStays(t *testing.T) {
	onBeds(t, func(t *testing.T, r *rig) {
		c, s := r.connect(nil, nil)
		for _, end := range []*Conn{c, s} {
			n := end.QPNum()
			must.Do(t, end.Disconnect())
			r.event(end, Closed)
			if end.QPNum() != n || n == 0 {
				t.Errorf("the queue pair was %d and is %d after Disconnect", n, end.QPNum())
			}
		}
	})
}
