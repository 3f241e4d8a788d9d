//go:build linux && cgo && !portable

package ibv

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Provider is the provider over libibverbs and librdmacm. All methods may be
// called from any goroutine.
type Provider struct {
	libs *libraries
	// interfaces is Config.Interfaces.
	interfaces func() ([]Interface, error)

	cmIDs   cmRegistry
	numbers atomic.Uint64 // of CM channels, for their names; incremented by CreateCMChannel
	// channels and idents count live CM channels and identifiers. Changed when each is made and
	// destroyed; read by CMObjects. They publish nothing.
	channels, idents atomic.Int64
}

var _ verbs.Provider = (*Provider)(nil)

// New makes a provider. It loads nothing: the first call that needs a missing library reports it.
// The error is ErrNotSupported on machines that are not 64-bit, where the contract's records and
// C's differ in layout.
func New(c Config) (*Provider, error) {
	if bits.UintSize != 64 {
		return nil, fmt.Errorf("%w: libibverbs on a %d-bit machine", verbs.ErrNotSupported, bits.UintSize)
	}
	p := &Provider{libs: newLibraries(c.withDefaults()), interfaces: c.Interfaces}
	if p.interfaces == nil {
		p.interfaces = systemInterfaces
	}
	return p, nil
}

// Default is the process-wide provider over the system's libraries.
func Default() *Provider { return defaultProvider() }

var defaultProvider = sync.OnceValue(func() *Provider {
	return &Provider{libs: newLibraries(Config{}.withDefaults()), interfaces: systemInterfaces}
})

// Name is "ibv".
func (p *Provider) Name() string { return "ibv" }

// deviceList calls f with each device of the library, until f returns false. The devices are
// valid in f only, except for one that f opens.
func (p *Provider) deviceList(op string, f func(t *verbsTable, d *C.struct_vb_device) bool) error {
	t, err := p.libs.verbs()
	if err != nil {
		return err
	}
	var n C.int
	list, err := C.shim_devices(t, &n)
	if list == nil {
		return noKernel(op, p.Name(), errnoOf(err), syscall.ENOSYS, "ib_uverbs")
	}
	defer C.shim_free_devices(t, list)
	for i := C.int(0); i < n; i++ {
		if !f(t, C.shim_device(list, i)) {
			break
		}
	}
	return nil
}

// Devices lists the devices that can be opened now. It opens each device briefly to read its
// addresses. Errors: [LibraryError], [SymbolError].
//
// Implements: ibv_get_device_list.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	infos := []verbs.DeviceInfo{}
	var closeErr error
	err := p.deviceList("ibv_get_device_list", func(t *verbsTable, d *C.struct_vb_device) bool {
		info := describe(t, d)
		if c, _ := C.shim_open(t, d); c != nil {
			table, _, _ := readTable(t, c) // a failure here recurs and is reported by Open
			all, _ := p.interfaces()
			info.Addr = table.addresses(all)
			if e := syscall.Errno(C.shim_close(t, c)); e != 0 {
				closeErr = failed("ibv_close_device", info.Name, e)
			}
		}
		infos = append(infos, info)
		return true
	})
	if err = errors.Join(err, closeErr); err != nil {
		return nil, err
	}
	return infos, nil
}

// Open opens a device by name. For an unknown name it returns a *[verbs.DeviceError].
//
// Implements: ibv_open_device.
func (p *Provider) Open(name string) (verbs.Context, error) {
	const op = "ibv_open_device"
	var ctx *deviceContext
	var openErr error
	unknown := &verbs.DeviceError{Name: name}
	err := p.deviceList("ibv_get_device_list", func(t *verbsTable, d *C.struct_vb_device) bool {
		info := describe(t, d)
		if info.Name != name {
			unknown.Known = append(unknown.Known, info.Name)
			return true
		}
		c, err := C.shim_open(t, d)
		if c == nil {
			openErr = failed(op, name, errnoOf(err))
			return false
		}
		table, call, errno := readTable(t, c)
		if errno != 0 {
			C.shim_close(t, c) // the failure is reported already
			openErr = failed(call, name, errno)
			return false
		}
		all, err := p.interfaces()
		if err != nil {
			C.shim_close(t, c) // the failure is reported already
			openErr = fmt.Errorf("reading the network interfaces: %w", err)
			return false
		}
		info.Addr = table.addresses(all)
		ctx, openErr = newContext(p, t, c, info)
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case openErr != nil:
		return nil, openErr
	case ctx == nil:
		return nil, unknown
	}
	return ctx, nil
}

// CMObjects counts the live CM channels and identifiers, for leak checks: they belong to the
// provider, not to a context. It does not block.
func (p *Provider) CMObjects() verbs.ObjectCount {
	return verbs.ObjectCount{CMChannel: int(p.channels.Load()), CMID: int(p.idents.Load())}
}
