package altered

import "github.com/verbena-rdma/verbena/verbs"

// Provider is a provider whose devices report altered attributes.
type Provider struct {
	verbs.Provider
	Change func(*verbs.DeviceAttr) // called for each QueryDevice, from its goroutine
}

// Open implements verbs.Provider.
func (p Provider) Open(name string) (verbs.Context, error) {
	ctx, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return Context{ctx, p.Change}, nil
}

// Context is an open device of a Provider.
type Context struct {
	verbs.Context
	Change func(*verbs.DeviceAttr)
}

// QueryDevice implements verbs.Context.
func (c Context) QueryDevice() (verbs.DeviceAttr, error) {
	attr, err := c.Context.QueryDevice()
	c.Change(&attr)
	return attr, err
}

// WithoutExtensions is a Provider.Change that hides FLUSH and ATOMIC_WRITE.
func WithoutExtensions(attr *verbs.DeviceAttr) {
	attr.Opcodes &^= verbs.Opcodes(verbs.WRFlush, verbs.WRAtomicWrite)
	attr.Caps &^= verbs.CapFlushGlobal | verbs.CapFlushPersistent | verbs.CapAtomicWrite
}
