package soft

import (
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Provider is the software RNIC's provider. All methods may be called from any
// goroutine.
type Provider struct {
	fab     *fabric.Fabric
	devices []*device

	// opening orders the openings and last closings of devices.
	opening sync.Mutex

	cmConfig CMConfig
	cm       cmShared
}

var _ verbs.Provider = (*Provider)(nil)

// New makes a provider. Its devices join the fabric while at least one context
// is open, so a provider needs no closing. Errors wrap [verbs.ErrInvalid].
func New(c Config) (*Provider, error) {
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	p := &Provider{fab: c.Fabric, cmConfig: c.CM}
	for i, dc := range c.Devices {
		p.devices = append(p.devices, newDevice(p, dc, i))
	}
	return p, nil
}

// Default is the process-wide provider: soft0 (127.0.0.1) to soft3 (127.0.0.4)
// on the process-wide fabric, whose path MTU carries a whole message.
func Default() *Provider { return defaultProvider() }

var defaultProvider = sync.OnceValue(func() *Provider {
	p, err := New(Config{})
	if err != nil {
		panic(err) // only our own constants could be wrong
	}
	return p
})

var defaultFabric = sync.OnceValue(func() *fabric.Fabric {
	return fabric.New(fabric.Config{JumboMTU: true})
})

// Name is "soft".
func (p *Provider) Name() string { return "soft" }

// Fabric is the link of the devices, for tests that script its faults or drive
// its virtual clock.
func (p *Provider) Fabric() *fabric.Fabric { return p.fab }

// Devices lists the devices. It does not block.
//
// Implements: ibv_get_device_list.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	infos := make([]verbs.DeviceInfo, len(p.devices))
	for i, d := range p.devices {
		infos[i] = d.info()
	}
	return infos, nil
}

// Open opens a device by name. The first context of a device attaches it to
// the fabric, the last one closed detaches it. An unknown name is a
// *[verbs.DeviceError].
//
// Implements: ibv_open_device.
func (p *Provider) Open(name string) (verbs.Context, error) {
	d := p.device(name)
	if d == nil {
		e := &verbs.DeviceError{Name: name}
		for _, d := range p.devices {
			e.Known = append(e.Known, d.cfg.Name)
		}
		return nil, e
	}
	return p.open(d)
}

func (p *Provider) device(name string) *device {
	for _, d := range p.devices {
		if d.cfg.Name == name {
			return d
		}
	}
	return nil
}

// deviceAt is the device with an address, nil when there is none.
func (p *Provider) deviceAt(a netip.Addr) *device {
	for _, d := range p.devices {
		if d.cfg.Addr.Unmap() == a.Unmap() {
			return d
		}
	}
	return nil
}
