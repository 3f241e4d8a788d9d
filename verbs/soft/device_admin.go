package soft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Port state, removal and return of a device, for tests and for users who try fail-over without
// hardware. The functions may be called from any goroutine, but not during Progress, and wait for
// a running Progress call of the device.
//
//	         Remove                        last Close
//	present ────────> removed, objects left ──────────> gone
//	   ^                 │ Restore                        │ Restore
//	   └── a new device ─┴────────────────────────────────┘

// SetPort takes the device's port down or brings it up. While it is down, QueryPort reports DOWN
// and no packet leaves or arrives; queue pairs keep their state and their retry timers run. Each
// context gets PORT_ERR or PORT_ACTIVE on a change. The state lasts until the next SetPort or the
// removal of the device.
//
// Errors: a *[verbs.DeviceError] for a device that is not present.
func (p *Provider) SetPort(name string, up bool) error {
	p.opening.Lock()
	defer p.opening.Unlock()
	d := p.device(name)
	if d == nil {
		return p.unknown(name)
	}
	d.exclusive(func() {
		if d.down.Load() == !up {
			return
		}
		d.down.Store(!up)
		if d.p != nil {
			d.p.SetDown(!up)
		}
		ev := verbs.AsyncEvent{Type: verbs.EventPortErr, Port: portNumber}
		if up {
			ev.Type = verbs.EventPortActive
		}
		for _, c := range d.contexts {
			c.async.raise(ev)
		}
	})
	return nil
}

// Remove removes the device while it is in use. When it returns, neither the device's engine nor
// a peer that was reading from the device touches its memory, its packets neither leave nor
// arrive, and it is not listed and cannot be opened. Open contexts get DEVICE_FATAL, identifiers
// bound to the device DEVICE_REMOVAL. Every call except Close returns [verbs.ErrDeviceRemoved]
// with EIO, and outstanding requests never complete. Peers get no answer.
//
// Errors: a *[verbs.DeviceError] for a device that is not present.
//
// Implements: ib_uverbs_remove_one, ib_uverbs_free_hw_resources (kernel uverbs_main.c) and
// cma_process_remove (cma.c), as user space sees them.
func (p *Provider) Remove(name string) error {
	p.opening.Lock()
	defer p.opening.Unlock()
	d := p.device(name)
	if d == nil {
		return p.unknown(name)
	}
	p.setPresent(slices.DeleteFunc(slices.Clone(p.plugged()), func(o *device) bool { return o == d }))
	d.remove()
	if p.left == nil {
		p.left = map[int]qpNumbers{}
	}
	d.exclusive(func() { p.left[d.index] = d.qpNumbers })
	return nil
}

// Restore adds a new device with the name and address of a removed one, with its port up. Objects
// of the old device stay dead. Listeners on all devices listen on it too.
//
// Errors: a *[verbs.DeviceError] for a name that is not configured; [verbs.ErrInvalid] with
// EEXIST for a device that is present; the error of a listener that could not listen (the device
// is then present).
func (p *Provider) Restore(name string) error {
	const op = "restore"
	p.opening.Lock()
	i := slices.IndexFunc(p.slots, func(c DeviceConfig) bool { return c.Name == name })
	if i < 0 || p.device(name) != nil {
		defer p.opening.Unlock()
		if i < 0 {
			return p.unknown(name)
		}
		return opError(op, name, syscall.EEXIST, "%w: it was not removed", verbs.ErrInvalid)
	}
	d := newDevice(p, p.slots[i], i)
	d.qpNumbers = p.left[i]
	present := append(slices.Clone(p.plugged()), d)
	slices.SortFunc(present, func(a, b *device) int { return cmp.Compare(a.index, b.index) })
	p.setPresent(present)
	p.opening.Unlock()
	var errs []error
	for _, id := range p.cm.everywhere() {
		if err := id.follow(d); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// plugged returns the present devices, in the order of the configuration. The slice is read-only.
func (p *Provider) plugged() []*device { return *p.present.Load() }

func (p *Provider) setPresent(ds []*device) { p.present.Store(&ds) }

// unknown returns the error for a device that is not present.
func (p *Provider) unknown(name string) error {
	e := &verbs.DeviceError{Name: name}
	for _, d := range p.plugged() {
		e.Known = append(e.Known, d.cfg.Name)
	}
	return e
}
