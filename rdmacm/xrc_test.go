package rdmacm

import (
	"encoding/binary"
	"errors"
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
	l, at := r.listener(nil)
	dev := needsXRC(t, l)
	x := must.Get(dev.Context().OpenXRCD(-1, 0))(t)
	t.Cleanup(func() { must.Do(t, x.Close()) })
	must.Do(t, l.CreateSRQ(nil, &SRQInitAttr{MaxWR: 8, MaxSGE: 1, XRCD: x}))
	t.Cleanup(func() { must.Do(t, l.DestroySRQ()) })
	in := r.memory(l, 64, (*ID).RegMsgs)
	var senders [2]*ID
	for i := range senders {
		must.Do(t, l.PostRecv(uint64(i), in.Bytes()[8*i:8*i+8], in))
		info := &AddrInfo{Src: r.at[0], Dst: at, PortSpace: verbs.PSTCP, QPType: verbs.QPTXRCSend}
		c := r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, info, nil, &QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxInlineData: 64}}))(t))
		answer := make(chan error, 1)
		go func() { answer <- c.Connect(r.ctx, nil) }()
		s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
		if err := s.CreateQP(nil, &QPInitAttr{Type: verbs.QPTXRCRecv}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("an XRC_RECV queue pair without a domain: error %v, want EINVAL", err)
		}
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

// Rule: a request for XRC is not accepted with another queue pair, and the other way round.
func TestXRCMeetsXRC(t *testing.T) {
	r := newRig(t)
	l, at := r.listener(nil)
	needsXRC(t, l)
	info := &AddrInfo{Src: r.at[0], Dst: at, PortSpace: verbs.PSTCP, QPType: verbs.QPTXRCSend}
	c := r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, info, nil, &QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4}}))(t))
	answer := make(chan error, 1)
	go func() { answer <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.CreateQP(nil, attr()))
	if err := s.Accept(r.ctx, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an RC queue pair accepted a request for XRC: error %v, want EINVAL", err)
	}
	must.Do(t, s.Reject(nil))
	if err := <-answer; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Connect returned %v, want ECONNREFUSED", err)
	}
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
