package rpma

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// retold is a provider whose events of the connection manager are changed. Its identifiers cannot accept.
type retold struct {
	verbs.Provider
	tell func(*verbs.CMEvent)
}

func (p retold) CreateCMChannel() (verbs.CMChannel, error) {
	ch, err := p.Provider.CreateCMChannel()
	return &retoldChannel{ch, p.tell}, err
}

type retoldChannel struct {
	verbs.CMChannel
	tell func(*verbs.CMEvent)
}

func (c *retoldChannel) GetEvent() (verbs.CMEvent, bool, error) {
	ev, ok, err := c.CMChannel.GetEvent()
	if ok {
		c.tell(&ev)
	}
	return ev, ok, err
}

// Rule: each event of the connection manager that ends an attempt to connect is the event that librpma makes of
// it, and Conn.Err has a reason. An answer with private data of no bytes has none.
func TestEventsOfTheConnectionManager(t *testing.T) {
	if onDevice() {
		t.Skip("the test changes the events of the software RNIC")
	}
	r := newRig(t)
	ep, port := r.listen()
	for _, x := range []struct {
		name   string
		event  verbs.CMEventType
		status int
		want   Event
	}{
		{"ESTABLISHED", verbs.CMEstablished, 0, Established},
		{"UNREACHABLE", verbs.CMUnreachable, -int(syscall.ETIMEDOUT), Unreachable},
		{"CONNECT_ERROR", verbs.CMConnectError, -int(syscall.ECONNREFUSED), Lost},
		{"REJECTED", verbs.CMRejected, verbs.RejConsumer, Rejected},
		{"DISCONNECTED", verbs.CMDisconnected, 0, Closed},
		{"DEVICE_REMOVAL", verbs.CMDeviceRemoval, 0, Lost},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := mainBed(t)
			provider := retold{b.provider(t), func(ev *verbs.CMEvent) {
				if ev.Type == verbs.CMEstablished {
					ev.Type, ev.Status, ev.Conn.PrivateData = x.event, x.status, []byte{}
				}
			}}
			rt := must.Get(runtime.Open(runtime.Config{Provider: provider, Device: b.devices[0]}))(t)
			p := must.Get(NewPeer(rt))(t)
			c := must.Get(must.Get(p.NewConnReq(r.ctx, r.addr[1], port, nil))(t).Connect(nil))(t)
			s := must.Get(must.Get(ep.NextConnReq(r.ctx, nil))(t).Connect([]byte("not told")))(t)
			if e, err := c.NextEvent(r.ctx); e != x.want || err != nil {
				t.Errorf("the event is %v, %v; want %v", e, err, x.want)
			}
			if (c.Err() != nil) != (x.want != Established) || c.PrivateData() != nil {
				t.Errorf("the reason is %v and the private data %v; want a reason unless established, and no data", c.Err(), c.PrivateData())
			}
			must.Do(t, c.Close(r.ctx))
			must.Do(t, s.Close(r.ctx))
			must.Do(t, p.Close())
			must.Do(t, rt.Close(r.ctx))
		})
	}
}
