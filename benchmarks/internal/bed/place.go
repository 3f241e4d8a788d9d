package bed

import (
	"flag"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// The devices that a worker may run on.
const (
	Null = "null"
	Soft = "soft"
)

// ThereAddr is an address of the second device.
const ThereAddr = "127.0.0.2:0"

// Place selects the device that a worker runs on.
type Place struct {
	Device        string // Null or Soft
	Verbs, RDMACM string // the null device's libraries
}

// On returns the place of a device. It blocks while the null device is built, if necessary. Any
// goroutine may call it.
//
// Errors: those of nulldev.Build.
func On(device string) (Place, error) {
	if device != Null {
		return Place{Device: device}, nil
	}
	libs, err := nulldev.Build()
	return Place{device, libs.Verbs, libs.RDMACM}, err
}

// Flags defines flags that set p; its device is the default of -device. It does not block.
// One goroutine may call it.
func (p *Place) Flags(f *flag.FlagSet) {
	f.StringVar(&p.Device, "device", p.Device, Null+", "+Soft)
	f.StringVar(&p.Verbs, "verbs", "", "the null device's libibverbs")
	f.StringVar(&p.RDMACM, "rdmacm", "", "the null device's librdmacm")
}

// Args returns the arguments from which Flags reads p. It does not block. Any goroutine may call
// it.
func (p Place) Args() []string {
	return []string{"-device", p.Device, "-verbs", p.Verbs, "-rdmacm", p.RDMACM}
}

// Here returns the name of the first device.
func (p Place) Here() string { return p.Device + "0" }

// There returns the name of the second device.
func (p Place) There() string { return p.Device + "1" }

// Provider returns the device's provider. It blocks while libraries are loaded. Any goroutine may
// call it.
func (p Place) Provider() (verbs.Provider, error) {
	switch p.Device {
	case Soft:
		return soft.Default(), nil
	case Null:
		return ibv.New(ibv.Config{Verbs: p.Verbs, RDMACM: p.RDMACM})
	}
	return nil, fmt.Errorf("there is no device %q", p.Device)
}
