package rdmacm

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (rdma_create_srq_ex, rdma_create_qp_ex): one XRC shared receive queue of a listener serves all senders.
// Each sender has an XRC_RECV queue pair at the listener, and names the queue by its number. The receives complete to
// the completion queue of the listener.
func TestXRCOfIdentifiers(t *testing.T) {
	r := newRig(t)
	l := r.owns(must.Get(r.lib[1].CreateEndpoint(r.ctx, &AddrInfo{Flags: AIPassive, Src: r.at[1], PortSpace: verbs.PSIB, QPType: verbs.QPTXRCRecv}, nil, nil))(t))
	must.Do(t, l.Listen(0))
	dev := needsXRC(t, l)
	x := must.Get(dev.Context().OpenXRCD(-1, 0))(t)
	t.Cleanup(func() { must.Do(t, x.Close()) })
	must.Do(t, l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 8, MaxSGE: 1, XRCD: x}))
	t.Cleanup(func() { must.Do(t, l.DestroySRQ()) })
	in := r.memory(l, 64, (*ID).RegMsgs)
	var senders [2]*ID
	for i := range senders {
		must.Do(t, l.PostRecv(uint64(i), in.Bytes()[8*i:8*i+8], in))
		c := r.xrcDialer(l.LocalAddr())
		answer := make(chan error, 1)
		go func() { answer <- c.Connect(r.ctx, nil) }()
		s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
		must.Do(t, s.CreateQP(nil, &QPInitAttr{Type: verbs.QPTXRCRecv, XRCD: x}))
		must.Do(t, s.Accept(r.ctx, &verbs.ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, l.SRQ().Num()), RetryCount: 7, RNRRetryCount: 7}))
		must.Do(t, <-answer)
		r.memory(s, 8, (*ID).RegMsgs) // in the device's domain: the queue pair has none
		if err := s.PostSend(1, []byte("x"), nil, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a send of an XRC_RECV queue pair: error %v, want EINVAL", err)
		}
		senders[i] = c
	}
	for i, c := range senders {
		num := binary.BigEndian.Uint32(c.Event().Conn.PrivateData)
		bytes := []byte{byte('a' + i)}
		mr := r.memory(c, 8, (*ID).RegMsgs)
		copy(mr.Bytes(), bytes)
		_, err := c.PostSendList([]SendWR{{WRID: 9, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, 1)}, RemoteSRQN: num}})
		must.Do(t, err)
		r.sent(c, 9)
		if wc := r.received(l, uint64(i)); in.Bytes()[8*i] != bytes[0] || wc.ByteLen != 1 {
			t.Errorf("receive %d has %d bytes, the first is %q; want %q", i, wc.ByteLen, in.Bytes()[8*i], bytes)
		}
	}
}

// Rule (kernel cma.c, cma_ib_check_req_qp_type): a listener gets the requests of its type alone, and its queue pairs
// are of that type.
func TestXRCMeetsXRC(t *testing.T) {
	r := newRig(t)
	l, at := r.xrcListener()
	needsXRC(t, l)
	rc := r.owns(must.Get(r.lib[1].CreateEndpoint(r.ctx, &AddrInfo{Flags: AIPassive, Src: r.at[1], PortSpace: verbs.PSIB, QPType: verbs.QPTRC}, nil, nil))(t))
	must.Do(t, rc.Listen(0))
	for _, c := range []*ID{
		r.xrcDialer(rc.LocalAddr()),
		r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, &AddrInfo{Src: r.at[0], Dst: at, PortSpace: verbs.PSIB, QPType: verbs.QPTRC}, nil, attr()))(t)),
	} {
		if err := c.Connect(r.ctx, nil); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a request of type %v to a listener of another: error %v, want ECONNREFUSED", c.QPType(), err)
		}
	}
	c := r.xrcDialer(at)
	answer := make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	if err := s.CreateQP(nil, &QPInitAttr{Type: verbs.QPTRC, Cap: attr().Cap}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an RC queue pair for a request for XRC: error %v, want EINVAL", err)
	}
	must.Do(t, s.Reject(nil))
	if err := <-answer; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Connect returned %v, want ECONNREFUSED", err)
	}
	if err := s.SetTOS(1); err != nil {
		t.Errorf("an option of a bound identifier: %v", err)
	}
	if _, err := r.lib[0].CreateEndpoint(r.ctx, &AddrInfo{Src: r.at[0], Dst: at, PortSpace: verbs.PSTCP, QPType: verbs.QPTXRCSend}, nil, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("XRC in port space TCP: error %v, want ErrInvalid", err)
	}
}

// Rule: rdma_xclient and rdma_xserver of rdma-core 64, with communication type x, translated line by line: the server
// has its queue pair and its shared receive queue in the domain of the library.
func TestXClientAndXServer(t *testing.T) {
	r := newRig(t)
	listen, at := r.xrcListener()
	needsXRC(t, listen)
	answer := make(chan error, 1)
	client := r.xrcDialer(at)
	go func() { answer <- client.Connect(r.ctx, nil) }()
	id := r.owns(must.Get(listen.GetRequest(r.ctx))(t))
	must.Do(t, id.CreateSRQ(nil, &SRQInitAttr{MaxWR: 1, MaxSGE: 1}))
	mr := r.memory(id, 16, (*ID).RegMsgs)
	must.Do(t, id.PostRecv(0, mr.Bytes(), mr))
	srqn := binary.BigEndian.AppendUint32(nil, id.SRQ().Num())
	must.Do(t, id.Accept(r.ctx, &verbs.ConnParam{PrivateData: srqn}))
	must.Do(t, <-answer)
	msg := r.memory(client, 16, (*ID).RegMsgs)
	copy(msg.Bytes(), "xrc")
	n := must.Get(client.PostSendList([]SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGL: []verbs.SGE{msg.SGE(0, 16)},
		RemoteSRQN: binary.BigEndian.Uint32(client.Event().Conn.PrivateData)}}))(t)
	if n != 1 {
		t.Fatalf("%d requests were posted, want 1", n)
	}
	r.sent(client, 0)
	if wc := r.received(id, 0); wc.ByteLen != 16 || string(mr.Bytes()[:3]) != "xrc" {
		t.Errorf("%d bytes arrived, %q, want 16 that begin with xrc", wc.ByteLen, mr.Bytes())
	}
	must.Do(t, client.Disconnect(r.ctx))
	must.Do(t, id.Disconnect(r.ctx))
}

// xrcListener makes a passive endpoint for XRC at device 1, and returns its address. GetRequest makes the queue pairs of
// its requests.
func (r *rig) xrcListener() (*ID, netip.AddrPort) {
	r.t.Helper()
	info := &AddrInfo{Flags: AIPassive, Src: r.at[1], PortSpace: verbs.PSIB, QPType: verbs.QPTXRCRecv}
	l := r.owns(must.Get(r.lib[1].CreateEndpoint(r.ctx, info, nil, &QPInitAttr{}))(r.t))
	must.Do(r.t, l.Listen(0))
	return l, l.LocalAddr()
}

// xrcDialer makes an active endpoint for XRC at device 0.
func (r *rig) xrcDialer(to netip.AddrPort) *ID {
	r.t.Helper()
	info := &AddrInfo{Src: r.at[0], Dst: to, PortSpace: verbs.PSIB, QPType: verbs.QPTXRCSend}
	return r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, info, nil, &QPInitAttr{SQSigAll: true, Cap: verbs.QPCap{MaxSendWR: 4, MaxInlineData: 64}}))(r.t))
}

// needsXRC returns the device of id, or skips the test if the device has no XRC.
func needsXRC(t *testing.T, id *ID) *Device {
	t.Helper()
	dev := must.Get(id.Device())(t)
	if must.Get(dev.Context().QueryDevice())(t).Caps&verbs.CapXRC == 0 {
		t.Skipf("%v has no XRC", dev)
	}
	return dev
}
