package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// plug is the spare device of a case and its state, plugged in or not.
type plug struct {
	c    *Case
	name string
	out  bool
}

// spare makes an end on the device that the pair does not use. The case may unplug it; when the
// case ends it is plugged in again, after its context was closed.
func (c *Case) spare() (*End, *plug) {
	c.t.Helper()
	p := &plug{c: c, name: c.pair.Caps.Devices.Spare()}
	c.defers(p.restore)
	ep := &Endpoint{Provider: c.pair.A.Provider}
	ctx, err := ep.Provider.Open(p.name)
	c.must(err, "opening the spare device")
	c.defers(ctx.Close)
	ep.Context = ctx
	if ep.Port, err = verbs.ChoosePort(ctx); err == nil {
		err = ep.chooseAddr()
	}
	c.must(err, "choosing a port and an address of the spare device")
	e := newEnd(c, "the spare device", ep)
	c.more = append(c.more, e)
	return e, p
}

// remove unplugs the device.
func (p *plug) remove() {
	p.c.t.Helper()
	p.c.must(p.c.pair.Caps.Devices.Remove(p.name), "unplugging %s", p.name)
	p.out = true
}

// restore plugs the device in if it is unplugged.
func (p *plug) restore() error {
	if !p.out {
		return nil
	}
	p.out = false
	return p.c.pair.Caps.Devices.Restore(p.name)
}

// port takes the device's port down or up.
func (p *plug) port(up bool) {
	p.c.t.Helper()
	p.c.must(p.c.pair.Caps.Devices.SetPort(p.name, up), "setting the port of %s, up %v", p.name, up)
}

// linkOf connects a queue pair of one end with one of another.
func (c *Case) linkOf(x, y *End, mod ...func(*opts)) (a, b *QP) {
	c.t.Helper()
	o := c.defaults()
	for _, m := range mod {
		m(&o)
	}
	a, b = x.newQP(o, psnA), y.newQP(o, psnB)
	a.toInit()
	a.toRTR(b.info())
	a.toRTS()
	b.toInit()
	b.toRTR(a.info())
	b.toRTS()
	return a, b
}
