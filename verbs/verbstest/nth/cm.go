package nth

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

type cmChannel struct {
	verbs.CMChannel
	w *world
}

func (c *cmChannel) Close() error { return c.w.close("rdma_destroy_event_channel", c.CMChannel) }

func (c *cmChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	if err := c.w.plan.fails("rdma_create_id", c.CMChannel); err != nil {
		return nil, err
	}
	id, err := c.CMChannel.CreateID(ps, userData)
	if err != nil {
		return nil, err
	}
	return c.w.id(id), nil
}

func (c *cmChannel) CreateTypedID(ps verbs.PortSpace, t verbs.QPType, userData uint64) (verbs.CMID, error) {
	if err := c.w.plan.fails("rdma_create_id", c.CMChannel); err != nil {
		return nil, err
	}
	id, err := c.CMChannel.CreateTypedID(ps, t, userData)
	if err != nil {
		return nil, err
	}
	return c.w.id(id), nil
}

func (c *cmChannel) GetEvent() (verbs.CMEvent, bool, error) {
	if err := c.w.plan.fails("rdma_get_cm_event", c.CMChannel); err != nil {
		return verbs.CMEvent{}, false, err
	}
	ev, ok, err := c.CMChannel.GetEvent()
	ev.ID, ev.ListenID = c.w.id(ev.ID), c.w.id(ev.ListenID)
	return ev, ok, err
}

func (c *cmChannel) Ack(ev verbs.CMEvent) {
	ev.ID, ev.ListenID = innerID(ev.ID), innerID(ev.ListenID)
	c.CMChannel.Ack(ev)
}

type cmID struct {
	verbs.CMID
	w *world
}

// Close destroys the identifier's queue pair too.
func (i *cmID) Close() error {
	q := i.CMID.QP()
	return i.w.plan.closes("rdma_destroy_id", i.CMID, func() error {
		err := i.CMID.Close()
		if err == nil {
			i.w.forget(i.CMID)
			if q != nil {
				i.w.forget(q)
			}
		}
		return err
	})
}

func (i *cmID) QP() verbs.QP { return i.w.qp(i.CMID.QP()) }

func (i *cmID) Bind(local netip.AddrPort) error {
	if err := i.w.plan.fails("rdma_bind_addr", i.CMID); err != nil {
		return err
	}
	return i.CMID.Bind(local)
}

func (i *cmID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	if err := i.w.plan.fails("rdma_resolve_addr", i.CMID); err != nil {
		return err
	}
	return i.CMID.ResolveAddr(src, dst, timeout)
}

func (i *cmID) SetAckTimeout(code uint8) error {
	if err := i.w.plan.fails("rdma_set_option", i.CMID); err != nil {
		return err
	}
	return i.CMID.SetAckTimeout(code)
}

func (i *cmID) SetTOS(tos uint8) error {
	if err := i.w.plan.fails("rdma_set_option", i.CMID); err != nil {
		return err
	}
	return i.CMID.SetTOS(tos)
}

func (i *cmID) ResolveRoute(timeout time.Duration) error {
	if err := i.w.plan.fails("rdma_resolve_route", i.CMID); err != nil {
		return err
	}
	return i.CMID.ResolveRoute(timeout)
}

func (i *cmID) Listen(backlog int) error {
	if err := i.w.plan.fails("rdma_listen", i.CMID); err != nil {
		return err
	}
	return i.CMID.Listen(backlog)
}

func (i *cmID) CreateQP(p verbs.PD, init *verbs.QPInitAttr) error {
	if err := i.w.plan.fails("rdma_create_qp", i.CMID); err != nil {
		return err
	}
	if x, ok := p.(*pd); ok {
		p = x.PD
	}
	in := innerInit(init)
	if err := i.CMID.CreateQP(p, in); err != nil {
		return err
	}
	init.Cap = in.Cap
	return nil
}

func (i *cmID) Connect(p *verbs.ConnParam) error {
	if err := i.w.plan.fails("rdma_connect", i.CMID); err != nil {
		return err
	}
	return i.CMID.Connect(p)
}

func (i *cmID) Accept(p *verbs.ConnParam) error {
	if err := i.w.plan.fails("rdma_accept", i.CMID); err != nil {
		return err
	}
	return i.CMID.Accept(p)
}

func (i *cmID) Reject(private []byte) error {
	if err := i.w.plan.fails("rdma_reject", i.CMID); err != nil {
		return err
	}
	return i.CMID.Reject(private)
}

func (i *cmID) Disconnect() error {
	if err := i.w.plan.fails("rdma_disconnect", i.CMID); err != nil {
		return err
	}
	return i.CMID.Disconnect()
}

func (i *cmID) JoinMulticast(group netip.Addr, userData uint64) error {
	if err := i.w.plan.fails("rdma_join_multicast", i.CMID); err != nil {
		return err
	}
	return i.CMID.JoinMulticast(group, userData)
}

func (i *cmID) LeaveMulticast(group netip.Addr) error {
	if err := i.w.plan.fails("rdma_leave_multicast", i.CMID); err != nil {
		return err
	}
	return i.CMID.LeaveMulticast(group)
}

func (i *cmID) Migrate(to verbs.CMChannel) error {
	if err := i.w.plan.fails("rdma_migrate_id", i.CMID); err != nil {
		return err
	}
	if x, ok := to.(*cmChannel); ok {
		to = x.CMChannel
	}
	return i.CMID.Migrate(to)
}
