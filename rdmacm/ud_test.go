package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// datagrams makes an endpoint of port space UDP at device end.
func (r *rig) datagrams(end int) *ID {
	r.t.Helper()
	id := r.owns(must.Get(r.lib[end].CreateID(nil, nil, verbs.PSUDP))(r.t))
	must.Do(r.t, id.BindAddr(r.at[end]))
	return id
}

// Rule (rdma_post_ud_send, semantics 21 and 32): Connect in port space UDP brings the way to the peer's
// queue pair. The payload of a datagram begins after 40 bytes.
func TestDatagrams(t *testing.T) {
	r := newRig(t)
	l := r.datagrams(1)
	must.Do(t, l.Listen(0))
	c := r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, &AddrInfo{Src: r.at[0], Dst: l.LocalAddr(), PortSpace: verbs.PSUDP, QPType: verbs.QPTUD}, nil, attr()))(t))
	done := make(chan error, 1)
	go func() { done <- c.Connect(r.ctx, nil) }()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	must.Do(t, s.CreateQP(nil, attr()))
	in := r.memory(s, 128, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-done)
	way := c.Event().UD
	if way.QPNum != s.QP().Num() || way.QKey != verbs.UDPQKey {
		t.Errorf("ESTABLISHED brought queue pair 0x%x with key 0x%x, want 0x%x with 0x%x", way.QPNum, way.QKey, s.QP().Num(), verbs.UDPQKey)
	}
	ah := must.Get(must.Get(c.Device())(t).PD().CreateAH(&way.AH))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	t.Cleanup(func() { must.Do(t, c.DestroyQP()) })
	must.Do(t, c.PostUDSend(2, []byte("datagram"), nil, verbs.SendSignaled, ah, way.QPNum))
	r.sent(c, 2)
	if wc := r.received(s, 1); wc.ByteLen != verbs.GRHLen+8 || string(in.Bytes()[verbs.GRHLen:wc.ByteLen]) != "datagram" || wc.SrcQP != c.QP().Num() {
		t.Errorf("received %d bytes from queue pair 0x%x: %q", wc.ByteLen, wc.SrcQP, in.Bytes()[:wc.ByteLen])
	}
}

// Rule (rdma_join_multicast): a datagram to a group reaches the queue pairs that have joined, until they
// leave. The join brings the way to the group and the caller's context.
func TestMulticast(t *testing.T) {
	r := newRig(t)
	group := netip.MustParseAddr("239.7.7.7")
	var ids [2]*ID
	for i := range ids {
		ids[i] = r.datagrams(i)
		must.Do(t, ids[i].CreateQP(nil, attr()))
		must.Do(t, ids[i].JoinMulticast(r.ctx, group, i+5))
		if ev := ids[i].Event(); ev.Type != verbs.CMMulticastJoin || ev.Arg != i+5 || ev.UD.QPNum != verbs.McastQPN {
			t.Fatalf("the join brought %+v, want MULTICAST_JOIN with context %d", ev, i+5)
		}
	}
	way := ids[0].Event().UD
	ah := must.Get(must.Get(ids[0].Device())(t).PD().CreateAH(&way.AH))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	t.Cleanup(func() { must.Do(t, ids[0].DestroyQP()) })
	in := r.memory(ids[1], 128, (*ID).RegMsgs)
	must.Do(t, ids[1].PostRecv(1, in.Bytes(), in))
	_, err := ids[0].PostSendList([]SendWR{{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, AH: ah, RemoteQPN: way.QPNum, RemoteQKey: way.QKey}})
	must.Do(t, err)
	r.sent(ids[0], 2)
	if wc := r.received(ids[1], 1); wc.ByteLen != verbs.GRHLen {
		t.Errorf("received %d bytes, want %d", wc.ByteLen, verbs.GRHLen)
	}
	must.Do(t, ids[1].LeaveMulticast(group))
	if ids[1].LeaveMulticast(group) == nil {
		t.Error("a group can be left twice")
	}
	if n := len(ids[1].joins.all); n != 0 { // the bug: the contexts of all groups were kept
		t.Errorf("the contexts of %d groups are kept, want none after the last was left", n)
	}
}

// Rule: a join whose context ends leaves the group, so that the identifier can join it at once, and is then a member
// once. (The bug: it stayed a member or, on a device, had joined already.)
func TestJoinRightAfterOneThatHasEnded(t *testing.T) {
	r := newRig(t)
	id := r.datagrams(0)
	must.Do(t, id.CreateQP(nil, attr()))
	held := uatomic.NewBool(false)
	id.ch.cm = lateChannel{id.ch.cm, held}
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	group := netip.MustParseAddr("239.7.7.8")
	held.Store(true)
	if err := id.JoinMulticast(ended, group, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("a join whose context has ended returned %v, want %v", err, context.Canceled)
	}
	held.Store(false)
	must.Do(t, id.JoinMulticast(r.ctx, group, 6))
	if ev := id.Event(); ev.Type != verbs.CMMulticastJoin || ev.Arg != 6 {
		t.Errorf("the join brought %v with context %v, want MULTICAST_JOIN with 6", ev.Type, ev.Arg)
	}
	must.Do(t, id.LeaveMulticast(group))
	if id.LeaveMulticast(group) == nil {
		t.Error("the identifier had joined twice")
	}
}

// Rule: the spelling of a group does not matter: the one that leaves may differ from the one that joined. (The bug: on
// a device it did, and the contexts of the joins were kept.)
func TestSpellingsOfAGroup(t *testing.T) {
	r := newRig(t)
	id := r.datagrams(0)
	must.Do(t, id.CreateQP(nil, attr()))
	for join, leave := range map[string]string{"239.7.7.9": "::ffff:239.7.7.9", "::ffff:239.7.7.9": "239.7.7.9", "ff02::77%lo": "ff02::77", "ff02::77": "ff02::77%lo"} {
		err := id.JoinMulticast(r.ctx, netip.MustParseAddr(join), nil)
		const notSupported = syscall.Errno(524) // ENOTSUPP of the kernel
		if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, notSupported) {
			continue // the null device, and rdma_rxe, with a group of IPv6
		}
		must.Do(t, err)
		if err := id.LeaveMulticast(netip.MustParseAddr(leave)); err != nil {
			t.Errorf("joined %s, leaving %s: %v", join, leave, err)
		}
		if n := len(id.joins.all); n != 0 {
			t.Errorf("joined %s and left %s: %d contexts are kept, want none", join, leave, n)
		}
	}
}
