package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// byGID resolves the GID of a device, as udaddy -f gid does. The kernel has addresses of InfiniBand on ports of
// InfiniBand alone: byGID skips the test on others, after it has seen that.
func (r *rig) byGID(dev int, service string, hints AddrInfo) *AddrInfo {
	r.t.Helper()
	gid := verbs.GIDFromAddr(r.at[dev].Addr())
	hints.Flags |= AIFamily | AINumericHost
	hints.Family = AFIB
	res := &must.Get(GetAddrInfo(r.ctx, gid.Addr().String(), service, &hints))(r.t)[0]
	probe := r.owns(must.Get(r.lib[dev].CreateID(nil, nil, verbs.PSTCP))(r.t))
	if err := probe.BindIB(verbs.NewIBAddr(gid, verbs.PSTCP, 0)); errors.Is(err, syscall.ENODEV) {
		r.t.Skipf("%v: the port is not of InfiniBand (%v)", r.dev[dev], err)
	} else if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// Rule (rdma_getaddrinfo with RAI_FAMILY, rdma_bind_addr, rdma_resolve_addr with AF_IB): endpoints reach each other by
// GIDs and service IDs. Their requests have no header of the RDMA CM, so all private data is the program's (kernel
// cma.c, cma_user_data_offset).
func TestEndpointsWithGIDs(t *testing.T) {
	r := newRig(t)
	passive := r.byGID(1, "", AddrInfo{Flags: AIPassive})
	l := r.owns(must.Get(r.lib[1].CreateEndpoint(r.ctx, passive, nil, attr()))(t))
	must.Do(t, l.Listen(0))
	at, _ := l.IBAddrs()
	if want := verbs.NewIBAddr(passive.SrcIB.GID, verbs.PSTCP, at.Port()); at.GID != want.GID || at.SID != want.SID || at.SIDMask != verbs.AllServiceBits || at.Port() == 0 {
		t.Errorf("the listener is at %+v, want the GID and a port of port space TCP", at)
	}
	active := r.byGID(1, "", AddrInfo{})
	active.DstIB.SID, active.SrcIB = at.SID, verbs.NewIBAddr(verbs.GIDFromAddr(r.at[0].Addr()), verbs.PSTCP, 0)
	c := r.owns(must.Get(r.lib[0].CreateEndpoint(r.ctx, active, nil, attr()))(t))
	long := make([]byte, verbs.MaxPrivateConnectIB)
	for i := range long {
		long[i] = byte(i)
	}
	answer := make(chan error, 1)
	go func() {
		answer <- c.Connect(r.ctx, &verbs.ConnParam{PrivateData: long, RetryCount: 7, RNRRetryCount: 7})
	}()
	s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
	if got := s.Event().Conn.PrivateData; string(got) != string(long) {
		t.Errorf("the private data is % x, want % x", got, long)
	}
	must.Do(t, s.Accept(r.ctx, nil))
	must.Do(t, <-answer)
	_, peer := c.IBAddrs()
	local, client := s.IBAddrs()
	if peer.GID != at.GID || peer.SID != at.SID || local.GID != at.GID || local.SID != at.SID || client.GID != active.SrcIB.GID {
		t.Errorf("the ends are %v and %v with %v, want %v and %v", peer, local, client, at, active.SrcIB)
	}
	if c.LocalAddr().IsValid() || s.PeerAddr().IsValid() {
		t.Errorf("the ends have the IP addresses %v and %v, want none", c.LocalAddr(), s.PeerAddr())
	}
	in := r.memory(s, 8, (*ID).RegMsgs)
	must.Do(t, s.PostRecv(1, in.Bytes(), in))
	must.Do(t, c.PostSend(2, []byte("gid"), nil, verbs.SendSignaled))
	r.sent(c, 2)
	r.received(s, 1)
}

// Rule (rdma_join_multicast with AF_IB): a group is named by its GID, and left by it.
func TestGroupsWithGIDs(t *testing.T) {
	r := newRig(t)
	group := verbs.IBAddr{GID: verbs.GIDFromAddr(netip.MustParseAddr("239.7.7.8"))}
	var ids [2]*ID
	for i := range ids {
		res := r.byGID(i, "", AddrInfo{Flags: AIPassive, PortSpace: verbs.PSUDP})
		ids[i] = r.owns(must.Get(r.lib[i].CreateID(nil, nil, verbs.PSUDP))(t))
		must.Do(t, ids[i].BindIB(res.SrcIB))
		must.Do(t, ids[i].CreateQP(nil, attr()))
		flag := []MCJoinFlag{MCSendOnlyFullMember, MCFullMember}[i]
		must.Do(t, ids[i].JoinMulticastIB(r.ctx, group, flag, nil))
	}
	if err := ids[0].JoinMulticastIB(r.ctx, verbs.IBAddr{}, MCFullMember, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a group that is none: error %v, want ErrInvalid", err)
	}
	way := ids[0].Event().UD
	ah := must.Get(r.dev[0].PD().CreateAH(&way.AH))(t)
	t.Cleanup(func() { must.Do(t, ah.Close()) })
	t.Cleanup(func() { must.Do(t, ids[0].DestroyQP()) }) // before the handle: the device may still use it
	in := r.memory(ids[1], 64, (*ID).RegMsgs)
	must.Do(t, ids[1].PostRecv(1, in.Bytes(), in))
	must.Do(t, ids[0].PostUDSend(2, []byte("group"), nil, verbs.SendSignaled, ah, way.QPNum))
	r.sent(ids[0], 2)
	if wc := r.received(ids[1], 1); string(in.Bytes()[verbs.GRHLen:wc.ByteLen]) != "group" {
		t.Errorf("the group got %q", in.Bytes()[:wc.ByteLen])
	}
	for _, id := range ids {
		must.Do(t, id.LeaveMulticastIB(group))
	}
	if err := ids[0].LeaveMulticastIB(group); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("leaving the group twice: %v, want EADDRNOTAVAIL", err)
	}
}
