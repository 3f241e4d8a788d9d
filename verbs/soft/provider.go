package soft

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Provider is the software RNIC's provider. All methods may be called from any goroutine.
type Provider struct {
	fab   *fabric.Fabric
	slots []DeviceConfig // all configured devices
	// left holds the queue pair numbering of removed devices, by slot; under opening. A restored
	// device continues there: peers may still hold connections of the old one.
	left map[int]qpNumbers

	// opening serializes first opens, last closes, removal and restoring of devices.
	opening sync.Mutex
	// present is the devices that are not removed, in the order of slots. It is replaced by a new
	// slice under opening; any goroutine may read it.
	present atomic.Pointer[[]*device]

	cmConfig CMConfig
	cm       cmShared
}

var _ verbs.Provider = (*Provider)(nil)

// New makes a provider. A device is attached to the fabric while at least one context is open, so
// a provider needs no closing. Errors wrap [verbs.ErrInvalid].
func New(c Config) (*Provider, error) {
	c, err := c.validate()
	if err != nil {
		return nil, err
	}
	p := &Provider{fab: c.Fabric, cmConfig: c.CM, slots: c.Devices}
	p.cm.ports = map[verbs.PortSpace]*cmPorts{verbs.PSTCP: {}, verbs.PSUDP: {}, verbs.PSIB: {}}
	var devices []*device
	for i, dc := range c.Devices {
		devices = append(devices, newDevice(p, dc, i))
	}
	p.setPresent(devices)
	return p, nil
}

// Default returns the process-wide provider: soft0 (127.0.0.1) to soft3 (127.0.0.4) on the
// process-wide fabric, whose path MTU carries a whole message.
func Default() *Provider { return defaultProvider() }

var defaultProvider = sync.OnceValue(func() *Provider {
	p, err := New(Config{})
	if err != nil {
		panic(err) // only a wrong constant of this package can cause it
	}
	return p
})

var defaultFabric = sync.OnceValue(func() *fabric.Fabric {
	return fabric.New(fabric.Config{JumboMTU: true})
})

// Name returns "soft".
func (p *Provider) Name() string { return "soft" }

// Fabric returns the link of the devices, for tests that script its faults or drive its virtual
// clock.
func (p *Provider) Fabric() *fabric.Fabric { return p.fab }

// Devices lists the present devices. It does not block.
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

// Open opens a device by name. The first context of a device attaches it to the fabric; closing
// the last one detaches it. An unknown name yields a *[verbs.DeviceError].
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

// deviceAt returns the device with an address, nil when there is none.
func (p *Provider) deviceAt(a netip.Addr) *device {
	for _, d := range p.plugged() {
		if d.cfg.Addr.Unmap() == a.Unmap() {
			return d
		}
	}
	return nil
}
