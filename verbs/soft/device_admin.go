package soft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// What a person would do to an adapter with their hands, for tests and for those
// who try fail-over on a laptop. All of it may be called from any goroutine, but
// not from an engine's turn, and waits for a running turn of the device to end.
//
//	         Remove                        last Close
//	present ────────> removed, objects left ──────────> gone
//	   ^                 │ Restore                        │ Restore
//	   └── a new device ─┴────────────────────────────────┘

// SetPort takes the device's port down or brings it up. While it is down
// QueryPort says DOWN, nothing leaves and nothing arrives; queue pairs stay as
// they are and their retry timers run. Each context gets PORT_ERR or PORT_ACTIVE
// when it changes. The state lasts until the next SetPort or the device's end.
//
// Errors: a *[verbs.DeviceError] for a device that is not there.
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

// Remove takes the device out while it is in use. When it returns the device
// touches no memory any more, its own engine as little as peers that were reading
// from it; nothing of it leaves or arrives; it is not listed and cannot be opened.
// Contexts that were open have DEVICE_FATAL, identifiers bound to it
// DEVICE_REMOVAL; every call but Close answers [verbs.ErrDeviceRemoved] with EIO,
// and what was outstanding never completes. Peers see silence.
//
// Errors: a *[verbs.DeviceError] for a device that is not there.
//
// Implements: ib_uverbs_remove_one, ib_uverbs_free_hw_resources (kernel
// uverbs_main.c) and cma_process_remove (cma.c), as user space sees them.
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

// Restore plugs in a new device under the name and address of one that was
// removed, with its port up. Objects of the old one stay dead. Listeners on all
// devices listen on it too.
//
// Errors: a *[verbs.DeviceError] for a name that the configuration does not have;
// [verbs.ErrInvalid] with EEXIST for a device that is there; what kept a listener
// from listening (the device is there then).
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

// plugged is the devices that are there, in the order of the configuration. Not
// to be changed.
func (p *Provider) plugged() []*device { return *p.present.Load() }

func (p *Provider) setPresent(ds []*device) { p.present.Store(&ds) }

// unknown is the error for a device that is not there.
func (p *Provider) unknown(name string) error {
	e := &verbs.DeviceError{Name: name}
	for _, d := range p.plugged() {
		e.Known = append(e.Known, d.cfg.Name)
	}
	return e
}
