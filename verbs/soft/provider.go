package soft

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Provider is the software RNIC's provider. All methods may be called from any
// goroutine.
type Provider struct {
	fab   *fabric.Fabric
	slots []DeviceConfig // every device there can be
	// left is where removed devices stopped numbering queue pairs, by slot; under
	// opening. A new one goes on there: peers may still hold connections of the old.
	left map[int]qpNumbers

	// opening orders the openings and last closings of devices, and their being
	// taken out and plugged in.
	opening sync.Mutex
	// present is the devices plugged in, in the order of slots. A new slice each
	// time, written under opening; read by anyone.
	present atomic.Pointer[[]*device]

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
	p := &Provider{fab: c.Fabric, cmConfig: c.CM, slots: c.Devices}
	var devices []*device
	for i, dc := range c.Devices {
		devices = append(devices, newDevice(p, dc, i))
	}
	p.setPresent(devices)
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

// Devices lists the devices that are there. It does not block.
//
// Implements: ibv_get_device_list.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	devices := p.plugged()
	infos := make([]verbs.DeviceInfo, len(devices))
	for i, d := range devices {
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
		return nil, p.unknown(name)
	}
	return p.open(d)
}

func (p *Provider) device(name string) *device {
	for _, d := range p.plugged() {
		if d.cfg.Name == name {
			return d
		}
	}
	return nil
}

// deviceAt is the device with an address, nil when there is none.
func (p *Provider) deviceAt(a netip.Addr) *device {
	for _, d := range p.plugged() {
		if d.cfg.Addr.Unmap() == a.Unmap() {
			return d
		}
	}
	return nil
}
