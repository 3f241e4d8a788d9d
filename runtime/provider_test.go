package runtime

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: the provider stands in front of the device's name; the environment speaks
// only where the program says nothing.
func TestWhoChoosesTheDevice(t *testing.T) {
	own, _ := ownPorts(t)
	for _, c := range []struct {
		env            string
		cfg            Config
		device, refuse string // which is opened, or what is said
		kind           error
	}{
		{cfg: Config{}, device: "soft0"},
		{cfg: Config{Device: "soft2"}, device: "soft2"},
		{cfg: Config{Device: "soft:soft2"}, device: "soft2"},
		{cfg: Config{Device: "soft:"}, device: "soft0"},
		{env: "soft:soft1", cfg: Config{}, device: "soft1"},
		{env: "soft1", cfg: Config{}, device: "soft1"},
		{env: "soft1", cfg: Config{Device: "soft2"}, device: "soft2"},
		{env: "soft1", cfg: Config{Provider: own}, device: "a"},
		{cfg: Config{Provider: own, Device: "b"}, device: "b"},
		{cfg: Config{Provider: own, Device: "soft:b"}, device: "b"},
		{cfg: Config{Provider: own, Device: "ibv:b"}, refuse: "Config.Provider is soft", kind: ErrConfig},
		{cfg: Config{Device: "mlx:mlx5_0"}, refuse: `no provider "mlx", known: ibv, soft`, kind: ErrConfig},
		{env: "mlx:mlx5_0", cfg: Config{}, refuse: "the environment variable VERBENA_DEVICE", kind: ErrConfig},
		{env: "mlx5_0", cfg: Config{}, refuse: `is named "ibv:mlx5_0"`, kind: verbs.ErrUnknownDevice},
		{cfg: Config{Device: "mlx5_0"}, refuse: `is named "ibv:mlx5_0"`, kind: verbs.ErrUnknownDevice},
		{cfg: Config{Device: "soft:mlx5_0"}, refuse: "known: soft0, soft1", kind: verbs.ErrUnknownDevice},
	} {
		t.Setenv(DeviceEnv, c.env) // "" as if it were not there
		rt, err := Open(c.cfg)
		switch {
		case err != nil && c.refuse == "":
			t.Errorf("%q and %q: %v, want device %s", c.env, c.cfg.Device, err, c.device)
		case err != nil:
			mistake(t, "opening "+c.cfg.Device+c.env, err, c.kind, c.refuse)
		case rt.Device().Name != c.device || c.refuse != "":
			t.Errorf("%q and %q: device %s, want %s%s", c.env, c.cfg.Device, rt.Device().Name, c.device, c.refuse)
		}
		if err == nil {
			if err := rt.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		}
	}
}

// ownPorts is a provider of devices a and b.
func ownPorts(t *testing.T) (*soft.Provider, []string) {
	t.Helper()
	p, err := soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.1.0.1")}, {Name: "b", Addr: netip.MustParseAddr("10.1.0.2")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p, []string{"a", "b"}
}

// Rule: who names no device gets one that could be used; who names one gets it.
func TestDevicesWithoutACableArePassedOver(t *testing.T) {
	p, names := ownPorts(t)
	opened := func(device string) (string, error) {
		rt, err := Open(Config{Provider: p, Device: device})
		if err != nil {
			return "", err
		}
		return rt.Device().Name, rt.Close(testContext(t))
	}
	if err := p.SetPort("a", false); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(""); got != "b" || err != nil {
		t.Errorf("with the cable of a out: %q, %v, want b", got, err)
	}
	if got, err := opened("a"); got != "a" || err != nil {
		t.Errorf("asked for by name: %q, %v, want a", got, err)
	}
	if err := p.SetPort("b", false); err != nil {
		t.Fatal(err)
	}
	_, err := opened("")
	mistake(t, "no cable at all", err, errNoPort, names[0], names[1], "Config.Device")
	for _, name := range names {
		if err := p.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	_, err = opened("")
	mistake(t, "no device", err, verbs.ErrUnknownDevice, "soft")
}

// Rule: where the libraries or the kernel's part of RDMA are missing, the error
// is ErrNotSupported and says what is missing.
func TestLibibverbsThatIsMissingSaysSo(t *testing.T) {
	notOnDevice(t, "its libraries are there")
	for _, device := range []string{"ibv:", "ibv:mlx5_0"} {
		rt, err := Open(Config{Device: device})
		switch {
		case err == nil: // a machine with such a device
			if err := rt.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		case errors.Is(err, verbs.ErrUnknownDevice): // or with the libraries and another device
		default:
			mistake(t, device, err, verbs.ErrNotSupported, "ibv", "Config.Device")
		}
	}
}
