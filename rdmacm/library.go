package rdmacm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
)

// Config describes a Library. The zero value works.
type Config struct {
	// Provider implements the verbs, and Device names it by its prefix: "soft:" is the software RNIC,
	// "ibv:" the devices of libibverbs. By default the environment variable VERBENA_DEVICE has the
	// name; without it the provider is the software RNIC. An identifier chooses its device by its
	// addresses, as in C; a device that Device names is opened by Open, so that Open fails if it is
	// missing.
	Provider verbs.Provider
	Device   string
	// Policy is how the reactors wait when they are idle. Default reactor.PolicyEconomy.
	Policy reactor.Policy
	// CQEntries is the capacity of each of a reactor's two completion queues. By default they grow
	// with the queue pairs.
	CQEntries int
}

// Library is what librdmacm keeps in a process: the provider, and each device that an identifier is
// bound to, with its context, its protection domain and its reactor.
//
//	Open ──> open ── Close ──> closed
//
// A device that is removed stays open until Close, with its context, even if another one comes back under its
// name. Identifiers that are bound from then on get the new one.
//
// Methods may be called from any goroutine.
type Library struct {
	cfg      Config
	provider verbs.Provider
	sleeper  *sleeper

	// mu guards the fields below. Library.device, which opens a device, and Close hold it while they wait for a device.
	mu      sync.Mutex
	closed  bool
	devices map[string]*Device
	removed []*Device // replaced in devices; objects of them may be left, so Close closes them

	idMu   sync.Mutex     // guards the fields below; held for a few instructions, and locked after mu
	ending bool           // Close has found nothing left; there are no more identifiers
	ids    map[uint64]*ID // by the user data of their verbs.CMID
	last   uint64         // the last number given to an identifier
}

// Open makes a Library. The caller closes it. It blocks while it opens the device that Config.Device
// names, if any.
//
// Errors: open.ErrName; *verbs.DeviceError; ErrNotSupported if the provider's libraries are missing.
func Open(cfg Config) (*Library, error) {
	chosen, err := open.Choose(cfg.Provider, cfg.Device)
	if err != nil {
		return nil, err
	}
	l := &Library{cfg: cfg, provider: chosen.Provider, devices: map[string]*Device{}, ids: map[uint64]*ID{}}
	if l.sleeper, err = newSleeper(); err != nil {
		return nil, err
	}
	if chosen.Device != "" {
		if _, err = l.device(chosen.Device); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// Close closes the devices. Identifiers, event channels, memory regions and other objects must have
// been destroyed: otherwise Close returns verbs.ErrBusy; then some devices may be closed already, and only
// Close may be called, again. It waits for the reactors.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if err := l.end(); err != nil {
		return fmt.Errorf("closing rdmacm: %w", err)
	}
	for len(l.removed) > 0 {
		if err := l.removed[0].close(); err != nil {
			return fmt.Errorf("closing rdmacm: %w", err)
		}
		l.removed = l.removed[1:]
	}
	for name, d := range l.devices {
		if err := d.close(); err != nil {
			return fmt.Errorf("closing rdmacm: %w", err)
		}
		delete(l.devices, name)
	}
	l.closed = true
	return l.sleeper.close()
}

// end refuses new identifiers from now on, or returns verbs.ErrBusy if an identifier or a channel is left.
func (l *Library) end() error {
	l.idMu.Lock()
	defer l.idMu.Unlock()
	for _, id := range l.ids {
		return fmt.Errorf("%w: %d identifiers are not destroyed, %v among them", verbs.ErrBusy, len(l.ids), id)
	}
	if n := l.sleeper.count(); n > 0 {
		return fmt.Errorf("%w: %d event channels are not destroyed", verbs.ErrBusy, n)
	}
	l.ending = true
	return nil
}

// GetDevices opens the provider's devices, and returns them.
//
// Implements: rdma_get_devices, rdma_free_devices.
func (l *Library) GetDevices() ([]*Device, error) {
	infos, err := l.provider.Devices()
	if err != nil {
		return nil, err
	}
	var all []*Device
	for _, info := range infos {
		d, err := l.device(info.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// device returns the device of that name, which it opens if it is not open. A device that was removed is replaced by
// the one that has come back under its name, if there is one.
//
// Implements: sync_devices_list of librdmacm/cma.c, in part.
func (l *Library) device(name string) (*Device, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, verbs.ErrClosed
	}
	old := l.devices[name]
	if old != nil {
		if _, err := old.ctx.QueryDevice(); !errors.Is(err, verbs.ErrDeviceRemoved) {
			return old, nil
		}
	}
	d, err := openDevice(l, name)
	if err != nil {
		if old != nil { // it has not come back
			return old, nil
		}
		return nil, err
	}
	if l.devices[name] = d; old != nil {
		l.removed = append(l.removed, old)
	}
	return d, nil
}

// adopt registers an identifier under a number, which becomes the user data of its verbs.CMID.
func (l *Library) adopt(id *ID) (uint64, error) {
	l.idMu.Lock()
	defer l.idMu.Unlock()
	if l.ending {
		return 0, verbs.ErrClosed
	}
	l.last++
	id.number = l.last
	l.ids[id.number] = id
	return id.number, nil
}

func (l *Library) forget(id *ID) {
	l.idMu.Lock()
	defer l.idMu.Unlock()
	delete(l.ids, id.number)
}

// id returns the identifier with that number, or nil.
func (l *Library) id(number uint64) *ID {
	l.idMu.Lock()
	defer l.idMu.Unlock()
	return l.ids[number]
}

// Device is an open device: the context that librdmacm gives to the identifiers bound to it, and the
// protection domain that it uses by default.
type Device struct {
	lib    *Library
	ctx    verbs.Context
	pd     verbs.PD
	r      *reactor.Reactor
	waits  *futures.Pool[*CQ]
	bounce bouncer
	limits verbs.DeviceAttr // immutable

	mu   sync.Mutex
	xrcd verbs.XRCD // see domain; under mu
}

func openDevice(l *Library, name string) (d *Device, err error) {
	d = &Device{lib: l}
	if d.ctx, err = l.provider.Open(name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.limits, err = d.ctx.QueryDevice(); err != nil {
		return nil, err
	}
	if d.pd, err = d.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if d.r, err = reactor.New(reactor.Config{Context: d.ctx, Policy: l.cfg.Policy, CQEntries: l.cfg.CQEntries}); err != nil {
		return nil, err
	}
	d.waits = futures.NewPool(futures.Options[*CQ]{Dispose: disposeWait})
	return d, nil
}

// close closes what openDevice has made. It may be called again.
func (d *Device) close() error {
	if d.r != nil {
		if err := d.r.Close(background); err != nil && !errors.Is(err, reactor.ErrClosed) {
			return err
		}
	}
	if err := d.bounce.drop(nil); err != nil {
		return err
	}
	if d.xrcd != nil {
		if err := d.xrcd.Close(); err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
			return err
		}
	}
	if d.pd != nil {
		if err := d.pd.Close(); err != nil {
			return err
		}
	}
	return d.ctx.Close()
}

// domain returns the XRC domain that is used where the program gives none. It makes it at first use.
//
// Implements: ucma_get_xrcd of librdmacm/cma.c.
func (d *Device) domain() (verbs.XRCD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.xrcd == nil {
		x, err := d.ctx.OpenXRCD(-1, os.O_CREATE)
		if err != nil {
			return nil, err
		}
		d.xrcd = x
	}
	return d.xrcd, nil
}

// Context returns the open device, for calls of package verbs. Objects that the program makes with it
// are the program's to close. It belongs to the Library.
//
// Implements: the member verbs of struct rdma_cm_id.
func (d *Device) Context() verbs.Context { return d.ctx }

// PD returns the protection domain that is used where the program gives none. It belongs to the
// Library.
//
// Implements: the member pd of struct rdma_cm_id.
func (d *Device) PD() verbs.PD { return d.pd }

// String returns the name of the device.
func (d *Device) String() string { return d.ctx.Device().Name }

// do runs fn with the reactor's turn held, and returns its error.
func (d *Device) do(fn func() error) error {
	var err error
	if derr := d.r.Do(background, func() { err = fn() }); derr != nil {
		return derr
	}
	return err
}
