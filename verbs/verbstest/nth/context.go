package nth

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Wrap puts a provider around another one. plan counts the calls, and fails the one it selects.
func Wrap(p verbs.Provider, plan *Plan) verbs.Provider {
	return &provider{Provider: p, w: &world{plan: plan, made: map[any]any{}}}
}

type provider struct {
	verbs.Provider
	w *world
}

func (p *provider) String() string { return p.Provider.Name() }

func (p *provider) Devices() ([]verbs.DeviceInfo, error) {
	if err := p.w.plan.fails("ibv_get_device_list", p); err != nil {
		return nil, err
	}
	return p.Provider.Devices()
}

func (p *provider) Open(name string) (verbs.Context, error) {
	if err := p.w.plan.fails("ibv_open_device", named(name)); err != nil {
		return nil, err
	}
	c, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return p.w.context(c), nil
}

func (p *provider) CreateCMChannel() (verbs.CMChannel, error) {
	if err := p.w.plan.fails("rdma_create_event_channel", p); err != nil {
		return nil, err
	}
	ch, err := p.Provider.CreateCMChannel()
	if err != nil {
		return nil, err
	}
	return &cmChannel{CMChannel: ch, w: p.w}, nil
}

type context struct {
	verbs.Context
	w *world
	// removed is set by the batch that finds the device removed; read by later ones. It publishes
	// nothing.
	removed atomic.Bool
}

func (c *context) Close() error { return c.w.close("ibv_close_device", c.Context) }

func (c *context) QueryDevice() (verbs.DeviceAttr, error) {
	if err := c.w.plan.fails("ibv_query_device", c.Context); err != nil {
		return verbs.DeviceAttr{}, err
	}
	return c.Context.QueryDevice()
}

func (c *context) QueryPort(port uint8) (verbs.PortAttr, error) {
	if err := c.w.plan.fails("ibv_query_port", c.Context); err != nil {
		return verbs.PortAttr{}, err
	}
	return c.Context.QueryPort(port)
}

func (c *context) QueryGID(port uint8, index int) (verbs.GID, error) {
	if err := c.w.plan.fails("ibv_query_gid", c.Context); err != nil {
		return verbs.GID{}, err
	}
	return c.Context.QueryGID(port, index)
}

func (c *context) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	if err := c.w.plan.fails("ibv_query_gid_ex", c.Context); err != nil {
		return verbs.GIDEntry{}, err
	}
	return c.Context.QueryGIDEntry(port, index)
}

func (c *context) QueryGIDTable() ([]verbs.GIDEntry, error) {
	if err := c.w.plan.fails("ibv_query_gid_table", c.Context); err != nil {
		return nil, err
	}
	return c.Context.QueryGIDTable()
}

func (c *context) QueryPKey(port uint8, index int) (uint16, error) {
	if err := c.w.plan.fails("ibv_query_pkey", c.Context); err != nil {
		return 0, err
	}
	return c.Context.QueryPKey(port, index)
}

func (c *context) AllocPD() (verbs.PD, error) {
	if err := c.w.plan.fails("ibv_alloc_pd", c.Context); err != nil {
		return nil, err
	}
	p, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &pd{PD: p, w: c.w}, nil
}

func (c *context) OpenXRCD(fd, oflags int) (verbs.XRCD, error) {
	if err := c.w.plan.fails("ibv_open_xrcd", c.Context); err != nil {
		return nil, err
	}
	x, err := c.Context.OpenXRCD(fd, oflags)
	if err != nil {
		return nil, err
	}
	return c.w.xrcd(x), nil
}

func (c *context) CreateCompChannel() (verbs.CompChannel, error) {
	if err := c.w.plan.fails("ibv_create_comp_channel", c.Context); err != nil {
		return nil, err
	}
	ch, err := c.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &compChannel{CompChannel: ch, w: c.w}, nil
}

func (c *context) CreateCQ(cqe int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	if err := c.w.plan.fails("ibv_create_cq", c.Context); err != nil {
		return nil, err
	}
	if x, ok := ch.(*compChannel); ok {
		ch = x.CompChannel
	}
	q, err := c.Context.CreateCQ(cqe, ch, vector, userData)
	if err != nil {
		return nil, err
	}
	return c.w.cq(q), nil
}

func (c *context) Async() verbs.AsyncChannel {
	a := c.Context.Async()
	return known(c.w, a, func() *async { return &async{AsyncChannel: a, c: c} })
}
