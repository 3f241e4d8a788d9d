package open

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/sentinel"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// Env is the environment variable that names the device if the program names neither a provider nor
// a device.
const Env = "VERBENA_DEVICE"

// ErrName means that a name contradicts the given provider, or that its prefix is no provider's.
var ErrName = sentinel.Never("verbs/open: bad device name")

// providers maps the prefixes of device names to providers. A provider loads and starts nothing
// before its first use. For example, ibv opens its libraries when a device of ibv is opened.
var providers = map[string]func() verbs.Provider{
	"soft": func() verbs.Provider { return soft.Default() },
	"ibv":  func() verbs.Provider { return ibv.Default() },
}

// defaultProvider is the provider for device names without a prefix.
const defaultProvider = "soft"

// Choice is what a name stands for.
type Choice struct {
	Provider verbs.Provider
	Device   string // without the prefix; "": the provider's first device with an active port
	source   string // where the name comes from, for messages
	given    bool   // the program named the provider
}

// Choose returns the provider and the device that name stands for: "ibv:mlx5_0" is a device of
// libibverbs, "soft:soft1" one of the software RNIC, and a prefix alone selects the provider's first
// device with an active port. A name without a prefix is a device of given, or of the software RNIC if
// given is nil. If both are missing, the environment variable Env has the name. For messages, a
// program calls the two Config.Provider and Config.Device. Choose does not block. Its error is ErrName.
func Choose(given verbs.Provider, name string) (Choice, error) {
	c := Choice{Provider: given, source: "Config.Device", given: given != nil}
	if given == nil && name == "" {
		name, c.source = os.Getenv(Env), "the environment variable "+Env
	}
	prefix, device, named := strings.Cut(name, ":")
	c.Device = device
	switch {
	case !named && given != nil:
		c.Device = name
	case !named:
		c.Provider, c.Device = providers[defaultProvider](), name
	case given != nil && given.Name() == prefix:
	case given != nil:
		return c, fmt.Errorf("%w: %s is %q, but Config.Provider is %s", ErrName, c.source, name, given.Name())
	case providers[prefix] == nil:
		known := slices.Sorted(maps.Keys(providers))
		return c, fmt.Errorf("%w: %s is %q: there is no provider %q, known: %s", ErrName, c.source, name, prefix, strings.Join(known, ", "))
	default:
		c.Provider = providers[prefix]()
	}
	return c, nil
}

// Open opens the device. The caller closes it. Errors: those of [verbs.Provider].Open; if the choice
// has no device, the reasons why no device of the provider can be used.
func (c Choice) Open() (verbs.Context, error) {
	var dev verbs.Context
	var err error
	if c.Device == "" {
		dev, err = usable(c.Provider)
	} else {
		dev, err = c.Provider.Open(c.Device)
	}
	if err == nil {
		return dev, nil
	}
	if errors.Is(err, verbs.ErrUnknownDevice) && !c.given && c.Provider.Name() == defaultProvider && c.Device != "" {
		// The name may be that of a libibverbs device, and the user may have left out the prefix.
		err = fmt.Errorf("%w (of the software RNIC; a device of libibverbs is named \"ibv:%s\")", err, c.Device)
	}
	return nil, fmt.Errorf("opening device %q of provider %s (%s): %w", c.Device, c.Provider.Name(), c.source, err)
}

// usable opens the provider's first device with an active port. It skips devices without an active
// port, because a server may have devices without a cable.
func usable(p verbs.Provider) (verbs.Context, error) {
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

// ErrNoPort is the reason why a device without an active port is skipped.
var ErrNoPort = sentinel.Later("no port is active")

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
	return ErrNoPort
}
