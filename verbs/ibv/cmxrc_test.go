//go:build linux && cgo && !portable

package ibv

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// Rule: an XRC identifier has no object of librdmacm until it is bound. Before that it has no options, it can be moved to
// another channel and closed, and a bind that fails leaves it as it was.
func TestAnXRCIdentifierBeforeItIsBound(t *testing.T) {
	r := newCMRig(t)
	other := must.Get(r.ctx.p.CreateCMChannel())(t)
	id := must.Get(r.ch.CreateTypedID(verbs.PSIB, verbs.QPTXRCSend, 5))(t)
	if err := id.SetTOS(1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an option of an identifier that is not bound: %v, want ErrInvalid", err)
	}
	if err := id.ResolveRoute(time.Second); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a route without a device: %v, want ErrInvalid", err)
	}
	must.Do(t, id.Migrate(other))
	at := netip.AddrPortFrom(null0, 0)
	before := r.null.Stats().Objects
	for _, call := range []string{"rdma_create_ep", "rdma_bind_addr", "rdma_migrate_id"} {
		r.fault(nulldev.Fault{Kind: nulldev.FailCall, Call: call, Err: syscall.ENOMEM})
		if err := id.Bind(at); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("with a failing %s: %v, want ENOMEM", call, err)
		}
		if now := r.null.Stats().Objects; now != before {
			t.Errorf("a failing %s left %v behind, before it was %v", call, now, before)
		}
	}
	must.Do(t, id.Bind(at))
	must.Do(t, id.SetTOS(1))
	if id.Device() != "null0" || id.UserData() != 5 {
		t.Errorf("bound to device %q with user data %d", id.Device(), id.UserData())
	}
	must.Do(t, r.null.Remove("null0"))
	ev, ok, err := other.GetEvent()
	must.Do(t, err)
	if !ok || ev.ID != id || ev.Type != verbs.CMDeviceRemoval {
		t.Errorf("the channel it was moved to has event %+v, %v; want DEVICE_REMOVAL of the identifier", ev, ok)
	}
	other.Ack(ev)
	must.Do(t, id.Close())
	must.Do(t, must.Get(other.CreateTypedID(verbs.PSIB, verbs.QPTXRCRecv, 0))(t).Close())
	must.Do(t, other.Close())
	for _, ps := range []verbs.PortSpace{verbs.PSTCP, verbs.PSUDP} {
		if _, err := r.ch.CreateTypedID(ps, verbs.QPTXRCSend, 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("XRC in port space 0x%04x: %v, want ErrInvalid", uint16(ps), err)
		}
	}
}

// Rule (kernel cma.c, rdma_listen, cma_bind_addr): Listen and ResolveAddr bind an identifier that is not bound.
func TestAnXRCIdentifierIsBoundOnTheWay(t *testing.T) {
	r := newCMRig(t)
	l := must.Get(r.ch.CreateTypedID(verbs.PSIB, verbs.QPTXRCRecv, 0))(t)
	must.Do(t, l.Listen(0))
	id := must.Get(r.ch.CreateTypedID(verbs.PSIB, verbs.QPTXRCSend, 0))(t)
	must.Do(t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(null0, l.LocalAddr().Port()), time.Second))
	r.event(verbs.CMAddrResolved)
	must.Do(t, id.ResolveRoute(time.Second))
	r.event(verbs.CMRouteResolved)
	init := &verbs.QPInitAttr{SendCQ: r.cq, Type: verbs.QPTXRCSend, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}
	must.Do(t, id.CreateQP(r.pd, init))
	must.Do(t, id.Connect(nil))
	child := r.event(verbs.CMConnectRequest).ID
	if err := child.CreateQP(r.pd, init); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an XRC_SEND queue pair of an XRC_RECV identifier: %v, want ErrInvalid", err)
	}
	if err := child.CreateQP(nil, &verbs.QPInitAttr{Type: verbs.QPTXRCRecv}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an XRC_RECV queue pair without a domain: %v, want ErrInvalid", err)
	}
	must.Do(t, child.Close())
	r.event(verbs.CMRejected)
	must.Do(t, id.Close())
	must.Do(t, l.Close())
}
