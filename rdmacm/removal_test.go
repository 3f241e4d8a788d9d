package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// softRig is a rig on a software RNIC of its own.
func softRig(t *testing.T, wrap func(verbs.Provider) verbs.Provider) (*rig, *soft.Provider) {
	t.Helper()
	p := must.Get(soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.0.0.1")}, {Name: "b", Addr: netip.MustParseAddr("10.0.0.2")},
	}}))(t)
	r := &rig{t: t, ctx: testContext(t)}
	for i, name := range []string{"a", "b"} {
		lib := must.Get(Open(Config{Provider: wrap(p), Device: name}))(t)
		t.Cleanup(func() { must.Do(t, lib.Close()) })
		r.lib[i], r.dev[i] = lib, must.Get(lib.device(name))(t)
		r.at[i] = netip.AddrPortFrom(r.dev[i].Context().Device().Addr[0], 0)
	}
	return r, p
}

func plain(p verbs.Provider) verbs.Provider { return p }

// Rule: a device that comes back after its removal is opened anew for the identifiers that are bound to it from then on.
// What is left of the removed one ends as before.
func TestADeviceThatComesBackIsOpenedAgain(t *testing.T) {
	var first *Device
	t.Cleanup(func() { // after the libraries are closed
		if n := first.Context().Objects(); !n.Zero() {
			t.Errorf("Close has left objects of the removed device: %v", n)
		}
	})
	r, p := softRig(t, plain)
	l, at := r.listener(attr())
	exchange := func() (c *ID) {
		c = r.dialer(at, attr())
		answer := make(chan error, 1)
		go func() { answer <- c.Connect(r.ctx, nil) }()
		s := r.owns(must.Get(l.GetRequest(r.ctx))(t))
		in := r.memory(s, 8, (*ID).RegMsgs)
		must.Do(t, s.PostRecv(1, in.Bytes(), in))
		must.Do(t, s.Accept(r.ctx, nil))
		must.Do(t, <-answer)
		must.Do(t, c.PostSend(2, []byte("x"), nil, verbs.SendSignaled))
		r.sent(c, 2)
		r.received(s, 1)
		return c
	}
	old := exchange()
	first = must.Get(old.Device())(t)
	must.Do(t, p.Remove("a"))
	if dev := must.Get(old.Device())(t); dev != first {
		t.Errorf("the removed device is %p now, want %p", dev, first)
	}
	if err := old.PostSend(3, []byte("x"), nil, 0); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
		t.Errorf("a send on the removed device: %v", err)
	}
	must.Do(t, p.Restore("a"))
	if now := must.Get(exchange().Device())(t); now == first {
		t.Error("the new identifier has the removed device")
	}
	must.Do(t, old.Destroy(r.ctx))
}

// late is a provider whose channels keep their events back while held is set.
type late struct {
	verbs.Provider
	held *uatomic.Bool
}

type lateChannel struct {
	verbs.CMChannel
	held *uatomic.Bool
}

func (p late) CreateCMChannel() (verbs.CMChannel, error) {
	ch, err := p.Provider.CreateCMChannel()
	return lateChannel{ch, p.held}, err
}

func (c lateChannel) GetEvent() (verbs.CMEvent, bool, error) {
	if c.held.Load() {
		return verbs.CMEvent{}, false, nil
	}
	return c.CMChannel.GetEvent()
}

// Rule: a join returns with its own event, also when an earlier join has not waited for its event: that one has left its group.
func TestAJoinHasItsOwnEvent(t *testing.T) {
	held := uatomic.NewBool(false)
	r, _ := softRig(t, func(p verbs.Provider) verbs.Provider { return late{p, held} })
	id := r.datagrams(0)
	groups := [2]netip.Addr{netip.MustParseAddr("239.7.7.1"), netip.MustParseAddr("239.7.7.2")}
	held.Store(true)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	if err := id.JoinMulticast(ctx, groups[0], "first"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a join whose context has ended: %v, want context.Canceled", err)
	}
	held.Store(false)
	must.Do(t, id.JoinMulticast(r.ctx, groups[1], "second"))
	if ev := id.Event(); ev.Arg != "second" || ev.UD.AH.DGID != verbs.GIDFromAddr(groups[1]) {
		t.Errorf("the second join has event %v of %v with %v", ev.Type, ev.UD.AH.DGID, ev.Arg)
	}
	must.Do(t, id.LeaveMulticast(groups[1]))
	if id.LeaveMulticast(groups[0]) == nil {
		t.Error("the identifier was in the group of the join whose context had ended")
	}
}
