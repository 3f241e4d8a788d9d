package runtime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// DeviceEnv is the environment variable that names the device. It applies if Config names neither a
// provider nor a device (see Config.Device).
const DeviceEnv = "VERBENA_DEVICE"

// providers maps the prefixes of device names to providers. No other file of this package refers to
// the packages soft and ibv. A provider loads and starts nothing before its first use. For example,
// ibv opens its libraries when a runtime opens a device of ibv.
var providers = map[string]func() verbs.Provider{
	"soft": func() verbs.Provider { return soft.Default() },
	"ibv":  func() verbs.Provider { return ibv.Default() },
}

// defaultProvider is the provider for device names without a prefix.
const defaultProvider = "soft"

// choose returns the provider, and the name of the device without the prefix. If this name is
// empty, openUsable chooses the device. The third result is a text for error messages. It says
// whether the name comes from Config.Device or from the environment.
func (c Config) choose() (p verbs.Provider, device, source string, err error) {
	name, source := c.Device, "Config.Device"
	if c.Provider == nil && name == "" {
		name, source = os.Getenv(DeviceEnv), "the environment variable "+DeviceEnv
	}
	prefix, device, named := strings.Cut(name, ":")
	switch {
	case !named && c.Provider != nil:
		return c.Provider, name, source, nil
	case !named:
		return providers[defaultProvider](), name, source, nil
	case c.Provider != nil && c.Provider.Name() == prefix:
		return c.Provider, device, source, nil
	case c.Provider != nil:
		return nil, "", source, fmt.Errorf("%w: %s is %q, but Config.Provider is %s", ErrConfig, source, name, c.Provider.Name())
	case providers[prefix] == nil:
		known := slices.Sorted(maps.Keys(providers))
		return nil, "", source, fmt.Errorf("%w: %s is %q: there is no provider %q, known: %s", ErrConfig, source, name, prefix, strings.Join(known, ", "))
	}
	return providers[prefix](), device, source, nil
}

// openDevice opens the device that the configuration chooses.
func (c Config) openDevice() (verbs.Provider, verbs.Context, error) {
	p, name, source, err := c.choose()
	if err != nil {
		return nil, nil, err
	}
	var dev verbs.Context
	if name == "" {
		dev, err = openUsable(p)
	} else {
		dev, err = p.Open(name)
	}
	if err == nil {
		return p, dev, nil
	}
	if errors.Is(err, verbs.ErrUnknownDevice) && c.Provider == nil && p.Name() == defaultProvider && name != "" {
		// The name may be that of a libibverbs device, and the user may have left out the prefix.
		err = fmt.Errorf("%w (of the software RNIC; a device of libibverbs is named \"ibv:%s\")", err, name)
	}
	return nil, nil, fmt.Errorf("opening device %q of provider %s (%s): %w", name, p.Name(), source, err)
}

// openUsable opens the provider's first device with an active port. It skips devices without an active
// port, because a server may have devices without a cable.
func openUsable(p verbs.Provider) (verbs.Context, error) {
	devs, err := p.Devices()
	if err != nil {
		return nil, err
	}
	if len(devs) == 0 {
		return nil, fmt.Errorf("%w: the provider has no device", verbs.ErrUnknownDevice)
	}
	var passed []error // the reasons why devices were skipped
	for _, d := range devs {
		dev, err := p.Open(d.Name)
		if err == nil {
			if err = portActive(dev); err == nil {
				return dev, nil
			}
			err = errors.Join(err, dev.Close())
		}
		passed = append(passed, fmt.Errorf("%s: %w", d.Name, err))
	}
	return nil, fmt.Errorf("no usable device has an active port (Config.Device can name a device without an active port): %w", errors.Join(passed...))
}

// errNoPort is the error of a device without an active port.
var errNoPort = errors.New("no port is active")

// portActive returns nil if a port of the device is active, and otherwise an error.
func portActive(dev verbs.Context) error {
	attr, err := dev.QueryDevice()
	if err != nil {
		return err
	}
	for port := 1; port <= attr.PhysPorts; port++ {
		p, err := dev.QueryPort(uint8(port))
		if err != nil {
			return err
		}
		if p.State == verbs.PortActive {
			return nil
		}
	}
	return errNoPort
}
