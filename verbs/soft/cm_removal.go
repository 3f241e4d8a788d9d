package soft

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/cm"
)

// remove ends the device's work for good. First it makes calls fail, then it stops peers from
// reading this device's memory, then it raises the events. It closes the port last; the port's
// token still serializes the calls that close objects. The caller holds Provider.opening.
func (d *device) remove() {
	d.exclusive(func() {
		d.removed.Store(true)
		if d.p != nil {
			d.p.SetDown(true)
		}
		d.eachQP((*queuePair).abandon) // requests by reference
		d.keys.each(d.retire)          // READ responses
		for _, c := range d.contexts {
			c.async.raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
		}
		for _, id := range d.cm.bound.list() {
			id.reportRemoval()
		}
	})
	if p := d.port.Load(); p != nil {
		p.Detach() // so that a new device can have the address
	}
}

// removedError returns the error of every call except Close on a removed device.
//
// Implements: EIO of ib_uverbs_write and ib_uverbs_ioctl on a disassociated device (kernel
// uverbs_main.c, rdma_core.c).
func removedError(op, object string) error {
	return opError(op, object, syscall.EIO, "%w", verbs.ErrDeviceRemoved)
}

// checkPresent returns an error if the device is removed. It serves calls that need no exclusive section.
func (c *deviceContext) checkPresent(op string) error {
	if c.dev.removed.Load() {
		return removedError(op, c.String())
	}
	return nil
}

// idSet is a set of identifiers. Any goroutine may use it. No other lock is taken under mu.
type idSet struct {
	mu  sync.Mutex
	ids map[*cmID]struct{}
}

func (s *idSet) add(id *cmID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[*cmID]struct{}{}
	}
	s.ids[id] = struct{}{}
}

func (s *idSet) drop(id *cmID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.ids, id); len(s.ids) == 0 {
		s.ids = nil // an emptied map keeps its memory
	}
}

// list returns the identifiers in the order of their creation, so that a run in virtual time is
// repeatable.
func (s *idSet) list() []*cmID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.ids), func(a, b *cmID) int { return cmp.Compare(a.number, b.number) })
}

// everywhere returns the listeners on all devices.
func (s *cmShared) everywhere() []*cmID { return s.wild.list() }

// join registers the identifier, whose device is set, for DEVICE_REMOVAL. Either remove finds it
// in the set, or join finds the device removed.
func (id *cmID) join(d *device) {
	d.cm.bound.add(id)
	if d.removed.Load() {
		id.reportRemoval()
	}
}

// reportRemoval queues DEVICE_REMOVAL, once.
func (id *cmID) reportRemoval() {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.closed && !id.removalReported {
		id.removalReported = true
		id.ch.push(cmEvent{ev: verbs.CMEvent{Type: verbs.CMDeviceRemoval, ID: id}, id: id})
	}
}

// follow makes a listener on all devices listen on a new device, and releases the removed ones.
//
// Implements: cma_add_one (kernel cma.c), which listens for all of listen_any_list.
func (id *cmID) follow(d *device) error {
	id.api.Lock()
	defer id.api.Unlock()
	if s, _, closed := id.look(); closed || s != idListening || id.listensOn(d) {
		return nil
	}
	id.listeners = slices.DeleteFunc(id.listeners, func(l listening) bool {
		// A request not yet reported to the user still needs its device.
		if !l.dev.removed.Load() || id.hasChildOn(l.dev) {
			return false
		}
		l.withdraw()
		id.release(l.dev)
		return true
	})
	return id.listenOn(d)
}

func (id *cmID) listensOn(d *device) bool {
	return slices.ContainsFunc(id.listeners, func(l listening) bool { return l.dev == d })
}

func (id *cmID) hasChildOn(d *device) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	for c := range id.children {
		if c.dev == d { // immutable for a child
			return true
		}
	}
	return false
}

// listenOn holds a device and listens on it. The caller holds api.
func (id *cmID) listenOn(d *device) error {
	if err := id.hold(d); err != nil {
		return err
	}
	if err := id.listenHeld(d); err != nil {
		id.release(d)
		return err
	}
	return nil
}

// listenHeld listens on a device that is held. The caller holds api.
func (id *cmID) listenHeld(d *device) error {
	var l *cm.Listener
	var err error
	var at verbs.GID // of a device with one address: any
	if addr := id.localAddr().Addr(); d.cfg.Link == LinkPeers && !id.ib && !anywhere(addr) {
		at = verbs.GIDFromAddr(addr)
	}
	d.exclusive(func() {
		l, err = d.cm.machine.ListenAt(cm.ServiceID(id.ps, id.port), at, id.only, id.backlog, id)
	})
	if err != nil {
		return withErrno(syscall.EADDRINUSE, "%w", err) // the port table prevents this
	}
	id.listeners = append(id.listeners, listening{d, l, id.announce(d)})
	return nil
}
